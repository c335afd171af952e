"""Examples of the documents, run by the tests as they stand on the page."""

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
README = REPOSITORY / "README.md"
TABLES = REPOSITORY / "pipeline" / "tables" / "README.md"


def block(page: Path, paragraph: str) -> str:
    """The first block of code after the paragraph that begins with these words."""
    example = rf"^{re.escape(paragraph)}.*?\n```\w+\n(.*?)```"
    found = re.search(example, page.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        sys.exit(f"{page.relative_to(REPOSITORY)} has no block of code after '{paragraph}'")
    return found[1]


def statements(text: str) -> list[tuple[str, str]]:
    """SQL statements, each with the comment above it as its title."""
    parts = [part.strip() for part in re.split(r";$", text, flags=re.MULTILINE)]
    return [(part.splitlines()[0].removeprefix("-- "), part) for part in parts if part]
