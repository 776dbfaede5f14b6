//! Paths of znodes: what is legal, and what lies above.

/// Paths that exist from the start and cannot be deleted.
pub(crate) const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// True if a znode may have this path.
pub(crate) fn is_valid(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.is_empty()
        || rest.split('/').all(|name| {
            !matches!(name, "" | "." | "..") && !name.chars().any(is_forbidden_character)
        })
}

fn is_forbidden_character(c: char) -> bool {
    // Java looks at UTF-16 units, so everything above U+FFFF is a pair of forbidden surrogates.
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Parent as servers derive it, legal or not; `None` without any `/`.
pub(crate) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// Last component.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path itself, then everything above it.
pub(crate) fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| if *path == "/" { None } else { parent(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_must_be_real_and_printable() {
        for path in ["/", "/a", "/a/b", "/a.b/..c", "/ä", "/\u{d7ff}", "/\u{ffef}"] {
            assert!(is_valid(path), "{path:?}");
        }
        for path in [
            "",
            "a",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/a/..",
            "/a\0",
            "/\u{1}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{10000}",
        ] {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn ancestry_ends_at_the_root() {
        assert_eq!(ancestry("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestry("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestry("x").collect::<Vec<_>>(), ["x"]);
    }
}
