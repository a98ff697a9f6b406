"""Which metric name of which product is which canonical signal."""

from collector.catalog.products import (
    PRODUCTS,
    Family,
    Product,
    ProductSignal,
    RowRule,
    canonical_key,
    product,
    recognise,
    wanted_keys,
)
from collector.catalog.signals import Aggregate, CatalogSignal, signals

__all__ = [
    "PRODUCTS",
    "Aggregate",
    "CatalogSignal",
    "Family",
    "Product",
    "ProductSignal",
    "RowRule",
    "canonical_key",
    "product",
    "recognise",
    "signals",
    "wanted_keys",
]
