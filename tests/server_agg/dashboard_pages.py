"""The dashboard's pages as a browser would read them."""

from html.parser import HTMLParser

PAGES = ("/", "/dashboard/live", "/dashboard/rounds", "/dashboard/rounds/1", "/dashboard/models")
VOID = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """Holds a page to balanced tags; collects its cells row by row and everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.fetched: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.attributes |= named.keys()
        self.fetched += [str(named[name]) for name in ("src", "data-url") if name in named]
        self.fetched += [str(named["href"])] if tag in ("link", "use", "image") else []
        if tag == "script":
            assert "src" in named
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= dict(attrs).keys()

    def handle_data(self, data: str) -> None:
        assert not (self.open and self.open[-1] in ("script", "style")), "script or style in the page itself"
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def rows_of(text: str) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in row] for row in read(text).rows]
