"""Puts many mutants into one tree, so that one build serves all of them.

A function that mutants change gets all its variants, and chooses one of them when it is called:

  fn free(&self) -> usize {
      if crate::mutant_switch::is(17) {{ self.permits + 1 }}
      else { self.permits }
  }

The variable ZK_MUTANT says which mutants a process runs, by their numbers with commas in between; without
it, the process runs none. Of two that change the same function, only the first can be on.

All of them have the imports of the tree. A mutant that changes anything else outside of the bodies of
functions cannot be switched on; nor can one of a constant function, or of one that hides its type.
"""

import json
import re
import subprocess
from bisect import bisect_right

import mutant

VARIABLE = "ZK_MUTANT"
# Names a file to which a process appends the number of each mutant whose function it calls.
REACHED = "ZK_MUTANTS_REACHED"
MODULE = f"""
/// Says which mutant this process runs.
#[doc(hidden)]
#[allow(missing_docs, dead_code, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod mutant_switch {{
    use std::sync::atomic::{{AtomicBool, Ordering}};

    static CHOSEN: std::sync::LazyLock<[bool; 1024]> = std::sync::LazyLock::new(|| {{
        let mut chosen = [false; 1024];
        for number in std::env::var("{VARIABLE}").iter().flat_map(|numbers| numbers.split(',')) {{
            chosen[number.parse::<usize>().expect("{VARIABLE} has numbers")] = true;
        }}
        chosen
    }});
    static IS_REACHED: [AtomicBool; 1024] = [const {{ AtomicBool::new(false) }}; 1024];

    pub fn is(number: u32) -> bool {{
        let flag = &IS_REACHED[number as usize];
        if !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed) {{
            note(number);
        }}
        CHOSEN[number as usize]
    }}

    fn note(number: u32) {{
        use std::io::Write as _;
        if let Ok(path) = std::env::var("{REACHED}") {{
            let file = std::fs::File::options().append(true).create(true).open(path);
            let line = format!("{{number}}\\n");
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("{REACHED} can be written");
        }}
    }}
}}
"""


class Combined:
    """The texts of the files that change, and which lines of them belong to which mutants."""

    def __init__(self, names, source):
        self.texts = {}
        self.numbers = {}
        self.left_out = {}
        # The places of the functions that each mutant changes.
        self.functions = {}
        self._owners = {}
        places = {}
        for name in names:
            edits = mutant.places(name, mutant.read(name), source)
            reason = self._why_not(edits, source)
            if reason:
                self.left_out[name] = reason
                continue
            number = self.numbers[name] = len(self.numbers) + 1
            for file, edits_of_file in edits.items():
                places.setdefault(file, []).append((name, number, edits_of_file))
        roots = set()
        for file, mutants in places.items():
            roots.add(root_of(file))
            self._combine(file, source(file), mutants)
        for root in roots:
            self.texts[root] = self.texts.get(root, source(root)[0]) + MODULE

    def owners(self, file, first, last):
        """Returns the mutants to which lines of a file belong."""
        return {
            name
            for begin, end, name in self._owners.get(file, [])
            if begin <= last and first <= end
        }

    def _why_not(self, edits, source):
        is_switched = False
        for file, edits_of_file in edits.items():
            text, tokens = source(file)
            spans = bodies(tokens)
            for begin, end, _ in edits_of_file:
                if body_of(spans, begin, end):
                    is_switched = True
                elif not is_import(text, begin):
                    return f"{file}:{text.count(chr(10), 0, begin) + 1} is outside of a function"
        return None if is_switched else "it changes no function"

    def _combine(self, file, source, mutants):
        text, tokens = source
        spans = bodies(tokens)
        variants = {}
        for name, number, edits in mutants:
            for edit in edits:
                if span := body_of(spans, *edit[:2]):
                    self.functions.setdefault(name, set()).add((file, span))
                    variants.setdefault(span, {}).setdefault((name, number), []).append(edit)
        output, at, line = [], 0, 1

        def emit(piece, owner=None):
            nonlocal line
            end = line + piece.count("\n")
            if owner:
                self._owners.setdefault(file, []).append((line, end, owner))
            output.append(piece)
            line = end

        for (begin, end), of_body in sorted(variants.items()):
            emit(text[at:begin])
            at = end
            emit("{\n")
            for (name, number), edits in of_body.items():
                emit(f"if crate::mutant_switch::is({number}) {{\n")
                emit(mutant.replaced(text, edits, begin, end), name)
                emit("\n} else ")
            emit(text[begin:end])
            emit("\n}")
        emit(text[at:])
        self.texts[file] = "".join(output)


def bodies(tokens):
    """Returns the begin and the end of the body of each function that is not part of another one."""
    found, at = [], 0
    while at < len(tokens):
        if tokens[at].text == "fn" and at + 1 < len(tokens) and re.match(r"\w", tokens[at + 1].text):
            begin = opening(tokens, at)
            if begin is not None:
                end = closing(tokens, begin)
                found.append((tokens[begin].begin, tokens[end].end))
                at = end
        at += 1
    return found


def opening(tokens, at):
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if text in ("(", "["):
            depth += 1
        elif text in (")", "]"):
            depth -= 1
        elif depth == 0 and text == "{":
            return at
        elif depth == 0 and text == ";":
            return None
        at += 1
    return None


def closing(tokens, at):
    depth = 0
    for place in range(at, len(tokens)):
        if tokens[place].text == "{":
            depth += 1
        elif tokens[place].text == "}":
            depth -= 1
            if depth == 0:
                return place
    raise mutant.Bad("a bracket is not closed")


def body_of(spans, begin, end):
    """Returns the body that has a place within its brackets."""
    at = bisect_right(spans, (begin, float("inf"))) - 1
    if at >= 0 and spans[at][0] < begin and end < spans[at][1]:
        return spans[at]
    return None


def is_import(text, begin):
    """Whether the item at a place is an import; the switched tree keeps it as it is."""
    start = max(text.rfind(";", 0, begin), text.rfind("}\n\n", 0, begin)) + 1
    return re.match(r"(?:\s|//[^\n]*\n|\}|#!?\[[^\n]*\n)*(?:pub(?:\([^)]*\))? )?use\b", text[start:]) is not None


def root_of(file):
    """Returns the file of the root module of the crate to which a file belongs."""
    sources = file.partition("/src/")[0] + "/src"
    is_program = file.endswith("/src/main.rs") or not (mutant.ROOT / sources / "lib.rs").exists()
    return f"{sources}/main.rs" if is_program else f"{sources}/lib.rs"


def write(tree, names, packages, env):
    """Puts as many mutants as compile together into `tree`, a copy of the repository without changes.
    `packages` are the arguments of Cargo that name what must compile, `env` is its environment."""
    original = {}

    def source(file):
        if file not in original:
            text = (mutant.ROOT / file).read_text()
            original[file] = text, mutant.tokenized(text)
        return original[file]

    names, dropped = list(names), {}
    while True:
        combined = Combined(names, source)
        for file in original:
            text = combined.texts.get(file, source(file)[0])
            # What does not change is not built again.
            if (tree / file).read_text() != text:
                (tree / file).write_text(text)
        errors = list(errors_of(tree, packages, env))
        bad = {}
        for message, places in errors:
            for place in places:
                for name in combined.owners(*place):
                    bad.setdefault(name, message)
        if not errors:
            combined.left_out |= dropped
            return combined
        if not bad:
            raise mutant.Bad(f"the mutants do not compile together: {errors[0]}")
        dropped |= bad
        names = [name for name in names if name not in bad]


def errors_of(tree, packages, env):
    """Returns the errors of the compiler, each with the places that it names."""
    ended = subprocess.run(
        ["cargo", "check", "--quiet", "--locked", "--keep-going", "--message-format=json", *packages],
        cwd=tree,
        env=env,
        capture_output=True,
        text=True,
    )
    found = []
    for line in ended.stdout.splitlines():
        record = json.loads(line)
        message = record.get("message")
        if record.get("reason") == "compiler-message" and message["level"] == "error":
            places = [
                (span["file_name"], span["line_start"], span["line_end"])
                for part in [message, *message["children"]]
                for span in part["spans"]
            ]
            found.append((message["message"], places))
    if ended.returncode and not found:
        raise mutant.Bad(f"cargo check failed: {ended.stderr}")
    return found
