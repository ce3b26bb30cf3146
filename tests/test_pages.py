"""Links between the pages of the project, and their pictures."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "demo-out", "dist"))]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("https:", "http:")):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page}: {link}"
        if heading:
            assert heading in headings(target), f"{page}: {link}"


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


def test_the_index_names_every_page_of_docs() -> None:
    named = set(LINK.findall((ROOT / "docs" / "README.md").read_text("utf-8")))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_readme_shows_every_picture_of_docs() -> None:
    shown = set(LINK.findall((ROOT / "README.md").read_text("utf-8")))
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert "dashboard.png" in {picture.name for picture in pictures}
    for picture in pictures:
        assert f"docs/pictures/{picture.name}" in shown
        assert picture.stat().st_size <= 150_000
