"""Lines of keys, against documents of which the lines are known."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.toml_lines import Place, find_lines

TEXT = '''# first
top = 1
[a]
x = """
[not.a.table]
y = 1
""" # after
y = 'it''
"quoted \\u0041.key" = [
  1,  # one ]
  { in = "}", deep = [ [ 2 ],
      [3] ] },
]
d.e . "f" = { g = 1, h.i = 2 }
[[a.list]]
n = 1
[[a.list]]
n = 2
[a.list.sub]
m = 3
  [ last . 'one' ]
z = 2026-12-01T10:00:00Z
q = """""four""""
r = 1'''.replace("'it''", "'it'")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("top",), 2),
        (("a",), 3),
        (("a", "x"), 4),
        (("a", "y"), 8),
        (("a", "quoted A.key"), 9),
        (("a", "quoted A.key", 0), 10),
        (("a", "quoted A.key", 1, "in"), 11),
        (("a", "quoted A.key", 1, "deep"), 11),
        (("a", "quoted A.key", 1, "deep", 1), 12),
        (("a", "d", "e", "f"), 14),
        (("a", "d", "e", "f", "h", "i"), 14),
        (("a", "list"), 15),
        (("a", "list", 0, "n"), 16),
        (("a", "list", 1, "n"), 18),
        (("a", "list", 1, "sub", "m"), 20),
        (("last", "one", "z"), 22),
        (("last", "one", "r"), 24),
    ],
)
def test_a_place(place: Place, line: int) -> None:
    tomllib.loads(TEXT)
    assert find_lines(TEXT)[place] == line
    assert find_lines(TEXT.replace("\n", "\r\n"))[place] == line


def test_nothing_is_invented() -> None:
    assert ("a", "not") not in find_lines(TEXT)
    assert ("not",) not in find_lines(TEXT)


def places(value: object, place: Place = ()) -> set[Place]:
    """Every place in a parsed document."""
    found = {place} if place else set()
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        found |= places(item, (*place, key))
    return found


#: pieces that make valid documents often, and tricky ones
LINES = st.lists(
    st.sampled_from([
        "[t]", "[t.u]", "[[l]]", "[[l.m]]", "[ 'q.r' ]", "# c", "", "a = 1", 'b = "x#\\""',
        "c = '''\na = 2\n'''", 'd = """\\""""""', "e = [1, [2, 'x,]'], # c\n {f = 1},\n]",
        'g = {h = "}", i.j = [\'=\']}', "k . l = true", "m.'n o' = -1e3", '"" = 07:32:00',
        "p = []", "r = {}", "s = [\n\n]", 't = """a\\\\"""', "u = ''''x''''",
    ]),
    max_size=12,
)  # fmt: skip


@given(LINES)
def test_every_key_of_a_document_has_a_line_and_no_other(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = find_lines(text)
    assert set(found) == places(document)
    assert all(1 <= line <= text.count("\n") + 1 for line in found.values())
