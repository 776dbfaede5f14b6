"""Reads, applies and makes mutants: variants of the code that the suites must catch.

A mutant is a text file, NAME.mutant. Its header says which tests catch it; tests/mutants/run
describes it. The rest is a list of edits:

  In: crates/zk-recipes/src/queue/place.rs

  - if ahead < permits {
  + if ahead <= permits {

    let mut found = self.unknown(&names);
  + found.clear();

A line `In:` names a file of Rust code, and the edits below belong to that file, up to the next such
line. An edit is a group of lines without an empty line between them. The lines with `-` and those
with two spaces are the text to find; the lines with `-` are removed, those with two spaces stay,
and those with `+` are put there. So a mutant that only adds code also has a line that stays.

The text to find must occur exactly once in the file. It is compared token by token, so indentation,
line breaks, comments, and a comma before a closing bracket make no difference: what rustfmt moves,
and what somebody explains better, keeps a mutant alive. For the same reason, the text need not
consist of whole lines of the file.
"""

import difflib
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
FILE_LINE = "In: "
REMOVED, KEPT, ADDED = "- ", "  ", "+ "
CLOSING = {")", "]", "}", ">"}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(
    r"""
      //[^\n]* | /\*.*?\*/                          # A comment.
    | (?:br|cr|r)(\#+)".*?"\1                      # A raw string with a fence.
    | (?:br|cr|r)"[^"]*"
    | [bc]?"(?:\\.|[^"\\])*"
    | b?'(?:\\[^']+|\\'|[^'\\])'
    | '\w+                                          # A lifetime, or a label.
    | \d\w*(?:\.\d\w*)?
    | (?:r\#)?\w+
    | \.\.= | \.\.\. | <<= | >>=
    | :: | -> | => | == | != | <= | >= | && | \|\| | \.\. | << | >> | [-+*/%^&|]=
    | \S
    """,
    re.DOTALL | re.VERBOSE,
)


class Bad(Exception):
    """A mutant that cannot be applied or made; the message names it."""


class Token(NamedTuple):
    text: str
    begin: int
    end: int


class Edit(NamedTuple):
    file: str
    number: int  # That of its first line.
    lines: list  # Pairs of REMOVED, KEPT or ADDED and the text.

    def chosen(self, *marks):
        return "\n".join(text for mark, text in self.lines if mark in marks)


def names():
    return sorted(path.stem for path in FOLDER.glob("*.mutant"))


def read(name):
    """Returns the edits of a mutant."""
    path = FOLDER / f"{name}.mutant"
    if not path.exists():
        raise Bad(f"there is no {name}.mutant")
    return parse(name, path.read_text())


def parse(name, text):
    edits, file, is_inside = [], None, False
    lines = text.splitlines()
    if not lines or not lines[0].startswith("Caught by: "):
        raise Bad(f"{name}: the first line must be \"Caught by: SUITE[/FILTER] ...\"")
    for number, line in enumerate(lines, 1):
        mark, rest = line[:2].ljust(2), line[2:]
        if line.startswith(FILE_LINE):
            file, is_inside = line.removeprefix(FILE_LINE).strip(), False
            if file.startswith("/") or ".." in file.split("/"):
                raise Bad(f"{name}: line {number} names a file outside of the repository")
        elif file is None:
            continue
        elif not line.strip():
            is_inside = False
        elif mark not in (REMOVED, KEPT, ADDED):
            raise Bad(f"{name}: line {number} begins with none of \"- \", \"+ \" and two spaces")
        else:
            if not is_inside:
                edits.append(Edit(file, number, []))
            is_inside = True
            edits[-1].lines.append((mark, rest))
    if not edits:
        raise Bad(f"{name}: it changes nothing")
    return edits


def changed(name, edits, source):
    """Returns the files that a mutant changes, as a table of paths and texts. `source` returns the
    text of a path, and its tokens."""
    return {
        file: replaced(source(file)[0], found)
        for file, found in places(name, edits, source).items()
    }


def places(name, edits, source):
    """Returns what a mutant replaces in each file, sorted: the begin, the end and the new text."""
    found_in = {}
    for edit in edits:
        try:
            _, tokens = source(edit.file)
        except FileNotFoundError:
            raise Bad(f"{name}: there is no {edit.file}") from None
        wanted = tokenized(edit.chosen(REMOVED, KEPT))
        if same(wanted, tokenized(edit.chosen(KEPT, ADDED))):
            raise Bad(f"{name}: the edit at line {edit.number} changes nothing")
        if not wanted:
            raise Bad(f"{name}: the edit at line {edit.number} has no text to find")
        found = occurrences(wanted, tokens)
        if len(found) != 1:
            raise Bad(
                f"{name}: the text to find at line {edit.number} occurs {len(found)} times in "
                f"{edit.file}, not once: {edit.chosen(REMOVED, KEPT).strip()}"
            )
        found_in.setdefault(edit.file, []).extend(replacements(edit, found[0]))
    for file, edits_of_file in found_in.items():
        edits_of_file.sort(key=lambda place: place[:2])
        for (_, end, _), (begin, _, _) in zip(edits_of_file, edits_of_file[1:]):
            if begin < end:
                raise Bad(f"{name}: two edits of {file} overlap")
    return found_in


def replaced(text, edits, begin=0, end=None):
    """Returns a part of a text with sorted edits."""
    parts = []
    for first, last, put in edits:
        parts += [text[begin:first], put]
        begin = last
    return "".join(parts) + text[begin:end]


def replacements(edit, found):
    """Returns what an edit replaces, as the begin, the end and the new text of each part between
    lines that stay. What stays keeps its comments. `found` has the place of each token."""
    parts, at, taken, put = [], 0, [], []
    begin_next = found[0][0]

    def end_part():
        if taken or put:
            begin = taken[0][0] if taken else begin_next
            end = taken[-1][1] if taken else begin_next
            # An own line, so that it joins no token, and no comment hides what follows.
            parts.append((begin, end, "\n" + "\n".join(put) + "\n"))
        taken.clear()
        put.clear()

    for mark, text in edit.lines:
        if mark == ADDED:
            put.append(text)
            continue
        count = len(tokenized(text))
        here = found[at : at + count]
        at += count
        if mark == REMOVED:
            taken.extend(here)
        elif here:
            end_part()
            begin_next = here[-1][1]
    end_part()
    return parts


def tokenized(text):
    """Returns the tokens of a text of Rust, without comments."""
    found = TOKEN.finditer(text)
    return [
        # rustfmt moves the line breaks of a string that a backslash hides.
        Token(re.sub(r"\\\n\s*", "", match[0]) if '"' in match[0] else match[0], *match.span())
        for match in found
        if not match[0].startswith(("//", "/*"))
    ]


def occurrences(wanted, tokens):
    """Returns, for each occurrence, the begin and the end of each wanted token in the text."""
    first = wanted[0].text
    starts = (at for at, token in enumerate(tokens) if token.text == first)
    found = (match_at(wanted, tokens, start) for start in starts)
    return [places for places in found if places is not None]


def match_at(wanted, tokens, at):
    places = []
    for number, (text, _, _) in enumerate(wanted):
        if has_text(tokens, at, text):
            places.append(tokens[at][1:])
            at += 1
        elif is_optional_comma(tokens, at) and has_text(tokens, at + 1, text):
            places.append(tokens[at + 1][1:])
            at += 2
        elif is_optional_comma(wanted, number) and at < len(tokens) and tokens[at].text in CLOSING:
            # The comma stands for an empty place behind the last token.
            places.append((places[-1][1], places[-1][1]) if places else tokens[at][1:2] * 2)
        else:
            return None
    return places


def has_text(tokens, at, text):
    return at < len(tokens) and tokens[at].text == text


def is_optional_comma(tokens, at):
    """Whether it is a comma before a closing bracket; the last token may be one."""
    if not has_text(tokens, at, ","):
        return False
    return at + 1 == len(tokens) or tokens[at + 1].text in CLOSING


def same(one, other):
    def kept(tokens):
        return [
            token.text for at, token in enumerate(tokens) if not is_optional_comma(tokens, at)
        ]

    return kept(one) == kept(other)


def made(file, before, after):
    """Returns the text of the edits that make `after` of `before`."""
    old, new = lines_of_code(before), lines_of_code(after)
    old_code, new_code = [line for line, _ in old], [line for line, _ in new]
    changes = changes_between(old_code, new_code)
    tokens = tokenized(before)
    ranges = []
    for begin, end, _, _ in changes:
        begin, end = unique_range(old_code, tokens, begin, end)
        while ranges and begin < ranges[-1][1]:
            earlier = ranges.pop()
            begin, end = min(begin, earlier[0]), max(end, earlier[1])
        ranges.append((begin, end))
    known = set(before.splitlines())
    edits = []
    for begin, end in ranges:
        lines, at = [], begin
        for old_begin, old_end, new_begin, new_end in changes:
            if old_begin < begin or old_end > end:
                continue
            lines += [(KEPT, line) for line in old_code[at:old_begin]]
            lines += [(REMOVED, line) for line in old_code[old_begin:old_end]]
            for line, comments in new[new_begin:new_end]:
                lines += [(ADDED, comment) for comment in comments if comment not in known]
                lines.append((ADDED, line))
            at = old_end
        lines += [(KEPT, line) for line in old_code[at:end]]
        indent = min(len(line) - len(line.lstrip()) for _, line in lines)
        edits.append("".join(f"{mark}{line[indent:]}\n" for mark, line in lines))
    return f"{FILE_LINE}{file}\n\n" + "\n".join(edits)


def lines_of_code(text):
    """Returns the lines that have tokens, each with the comments above it. An edit begins and ends
    with such a line."""
    found, comments = [], []
    for line in text.splitlines():
        if tokenized(line):
            found.append((line, comments))
            comments = []
        elif line.strip():
            comments.append(line)
    return found


def changes_between(old, new):
    """Returns the begin and the end of what differs, in the old lines and in the new ones."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changes = []
    for kind, *change in matcher.get_opcodes():
        if kind == "equal":
            continue
        # Where lines that are added or removed end with the line above them, such as a bracket,
        # they are meant with the one at their end.
        longer, first, last = (new, 2, 3) if kind == "insert" else (old, 0, 1)
        while (
            kind in ("insert", "delete")
            and change[last] < len(longer)
            and longer[change[first]] == longer[change[last]]
        ):
            change = [place + 1 for place in change]
        changes.append(tuple(change))
    return changes


def unique_range(lines, tokens, begin, end):
    """Extends a range of lines by as few lines as possible, so that its text occurs once."""
    for more in range(len(lines) + 1):
        for above in range(more, -1, -1):
            one, other = begin - above, end + more - above
            if one < 0 or other > len(lines) or one == other:
                continue
            if len(occurrences(tokenized("\n".join(lines[one:other])), tokens)) == 1:
                return one, other
    raise Bad("no text around a change occurs once: does a string begin or end there?")
