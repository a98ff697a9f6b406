from pathlib import Path

from fleetsim.traffic.document import BEGIN, END, compared, table
from fleetsim.traffic.families import AZURE_CODE, FAMILIES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "traffic.md"


def test_the_document_states_every_published_figure() -> None:
    lines = DOCUMENT.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    stated = [line.strip("| ").split(" | ")[:3] for line in lines[2:]]
    assert stated == [
        [family.name, figure, f"{published:g}"]
        for family in FAMILIES.values()
        for figure, published, _ in compared(family, [])
    ]


def test_a_row_has_the_median_and_the_range_of_the_runs() -> None:
    rows = table([AZURE_CODE], range(1, 4))
    assert rows == table([AZURE_CODE], range(1, 4))
    figure = next(row for row in rows.splitlines() if "output p50" in row)
    assert figure == "| azure-code | output p50 (tokens) | 13 | 13 | 13 to 13 |"
