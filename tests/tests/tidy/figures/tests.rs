//! Tests that a number that differs from its source, or that has none, is noticed.

use super::{File, outdated_of};

const FIGURES: &str = "\
# a comment

value lamp.rs :: const MAX: usize =
  lamp.md: to 2,500
value lamp.rs :: const GLOW: Duration =
  lamp.md: `glow` | 30 s
  oven.md: for 30 seconds
value lamp.rs :: { size:
  lamp.md: `size` | 4 MiB
value docs/lamp.md :: | `glow` |
  oven.md: of 30 s
value docs/lamp.md :: | warm |
  oven.md: warm for 21 s
value docs/lamp.md :: | warm | 21.0 s since
  oven.md: since 3.6
value lamp.rs :: lamp … version =
  oven.md: with lamp 0.23
test tests/tests/heat.rs :: it_is_hot
  oven.md: takes 1,500 to 2 steps
comparison tests/tests/heat.rs :: it_is_cheap
  oven.md: 7 crates
reason it is the least number
  oven.md: below 0 is
  lamp.md: limits | from 1
  lamp.md: ; 3 more
  lamp.md: 21.0 s … 3.6.0
";
const LAMP: &str = "\
# Lamps

1. Version `1.2`, [all](#7), MD5, X-1, Curator 5.4.

```text
12 lamps
```

| limits | from 1 to 2,500; a few |
| `glow` | 30 s (half a minute) |
| `size` | 4 MiB |
| on | 2 reads; 3 more |
| warm | 21.0 s since 3.6.0 |
";
const OVEN: &str = "It glows for 30 seconds, not of 30 s. It takes 1,500 to 2 steps and 7 crates; below 0 is 5 km. It comes with lamp 0.23, warm for 21 s since 3.6.\n";
const CODE: &str = "\
const MAX: usize = 2_500;
const GLOW: Duration = Duration::from_secs(30);
let it = Lamp { size: 4 << 20, on: true };
// lamp
version = \"0.23.1\"
";
const HEAT: &str = "\
#[test]
fn it_is_hot() {
    assert_eq!(steps, [1_500, 2]);
}

fn it_is_cheap() {
    assert!(read(\"oven.md\").contains(&count));
    page::check_text(\"oven.md\", \"is {} km.\", [1 + 4]);
}

const PAGE: &str = \"lamp.md\";
fn on() {
    let row = \"on\";
    page::check_requests(PAGE, row, &sent, 0);
}
";

/// Returns the problems if one text is in place of another.
fn problems(old: &str, new: &str) -> Vec<String> {
    let texts = [
        ("docs/lamp.md", LAMP),
        ("docs/oven.md", OVEN),
        ("docs/internals/lamp.md", "Up to 17 lamps."),
        ("lamp.rs", CODE),
        ("tests/tests/heat.rs", HEAT),
    ];
    let all = [FIGURES, LAMP, OVEN, CODE, HEAT];
    assert_eq!(all.iter().filter(|text| text.contains(old)).count(), 1, "{old:?}");
    let files = texts.map(|(path, text)| File { path: path.into(), text: text.replace(old, new) });
    outdated_of(&FIGURES.replace(old, new), &files)
}

#[test]
fn numbers_with_a_source_are_accepted() {
    assert_eq!(problems("# Lamps", "# Lights"), [""; 0]);
    for (old, new) in [
        ("4 << 20", "4 * 1024 * 1024"),
        ("from_secs(30)", "from_millis(30_000)"),
        ("2,500; a few", "2,500, `7` [and](7) so on\n\n2. Curator 5.3, MD4, X-2"),
        ("12 lamps", "13 lamps"),
    ] {
        assert_eq!(problems(old, new), [""; 0], "{new}");
    }
}

#[test]
fn each_number_that_differs_from_its_source_is_noticed() {
    for (old, new, count) in [
        ("2_500", "2_501", 1),
        ("<< 20", "<< 10", 1),
        // Two pages have it.
        ("from_secs(30)", "from_secs(31)", 2),
        ("GLOW: Duration = D", "SHINE: Duration = D", 2),
        ("[1_500, 2]", "[1_500, 3]", 1),
        ("21.0 s since 3.6.0", "21.5 s since 3.6.0", 5),
        ("since 3.6.0", "since 3.60", 4),
        ("\"0.23.1\"", "\"0.24.1\"", 1),
        ("\"0.23.1\"", "\"0.235.1\"", 1),
        ("fn it_is_hot", "fn it_is_warm", 1),
        ("fn it_is_cheap", "fn it_is_dear", 1),
        // The place, and the number that has no line any more.
        ("2,500; a few", "2,501; a few", 2),
        ("| 4 MiB |", "| 4 MB |", 2),
        ("4 MiB |\n| on", "5 MiB |\n| on", 2),
    ] {
        let found = problems(old, new);
        assert_eq!(found.len(), count, "{new}: {found:#?}");
    }
}

#[test]
fn numbers_and_lines_without_the_other_are_noticed() {
    for (old, new, count) in [
        ("; a few", "; 7 more", 1),
        ("half a minute", "0.5 minutes", 1),
        ("# Lamps", "# 3 lamps", 1),
        ("is 5 km", "is 5 m", 1),
        ("check_text(", "check(", 1),
        ("check_requests(", "check(", 1),
        ("let row = \"on\"", "let row = on()", 1),
        ("below 0 is 5", "below 5 is 5", 2),
        ("and 7 crates", "and crates", 1),
        ("  oven.md: 7 crates\n", "  oven.md: 8 crates\n", 2),
        ("  oven.md: 7 crates\n", "  oven.md: crates\n", 2),
        ("It glows for 30 seconds", "It glows for 30 seconds, for 30 seconds", 3),
        ("  lamp.md: ; 3 more\n", "  lamp.md: ; 3 more\n  lamp.md: | 2 reads\n", 1),
        ("  lamp.md: ; 3 more\n", "  ; 3 more\n", 1),
        ("reason it is the least number\n", "reason it is\nreason it is the least number\n", 1),
    ] {
        let found = problems(old, new);
        assert_eq!(found.len(), count, "{new}: {found:#?}");
    }
}
