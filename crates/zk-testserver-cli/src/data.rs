//! The znodes that exist at the start, from a JSON file.
//!
//! The file is one object. Each key is a path, and its value is the data: a string, `null` for none,
//! or `{"base64": "…"}`. Parents that are not named are created without data.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use zk_testserver::TestServer;

/// Znodes by their paths, so that a parent precedes its children.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Data(BTreeMap<String, Vec<u8>>);

impl Data {
    /// Parses a file. `max_bytes` is the longest request of a client, which no data may exceed:
    /// nobody could have written it.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, with the file, the line and the column.
    pub(crate) fn parse(file: &str, text: &str, max_bytes: usize) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut input = serde_json::Deserializer::from_str(text);
        let all = input.deserialize_map(Members { max_bytes });
        let all = all.and_then(|all| input.end().map(|()| all));
        all.map(Self).map_err(|problem| format!("{file}: {problem}"))
    }

    /// Creates the znodes.
    pub(crate) fn load(&self, server: &TestServer) {
        for (path, data) in &self.0 {
            for (end, _) in path.match_indices('/').skip(1) {
                let parent = path.get(..end).expect("a slash is a character of its own");
                if server.stat(parent).is_none() {
                    server.admin_create(parent, b"", None);
                }
            }
            if path == "/" {
                server.admin_set_data(path, data);
            } else {
                server.admin_create(path, data, None);
            }
        }
    }
}

/// Checks what the server would refuse.
fn check_path(path: &str) -> Result<(), String> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err("a path begins with /".to_owned());
    };
    let is_wrong = |name: &str| matches!(name, "" | "." | "..") || name.chars().any(is_forbidden);
    if !rest.is_empty() && rest.split('/').any(is_wrong) {
        return Err("a component of the path is empty, . or .., or cannot be printed".to_owned());
    }
    if path == "/zookeeper" || path.starts_with("/zookeeper/") {
        return Err("the znodes below /zookeeper belong to the server".to_owned());
    }
    Ok(())
}

/// Returns whether ZooKeeper forbids the character in paths.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Takes the data of one znode, so that a mistake has the position of its value.
struct DataOf<'a> {
    path: &'a str,
    max_bytes: usize,
}

impl DataOf<'_> {
    fn checked<E: Error>(&self, data: Vec<u8>) -> Result<Vec<u8>, E> {
        if data.len() > self.max_bytes {
            let (path, is, may_be) = (self.path, data.len(), self.max_bytes);
            return Err(E::custom(format!(
                "{path:?}: the data has {is} bytes, and --jute-maxbuffer is {may_be}"
            )));
        }
        Ok(data)
    }
}

impl<'de> DeserializeSeed<'de> for DataOf<'_> {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataOf<'_> {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the data of {:?}: a string, null, or an object {BASE64}", self.path)
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<u8>, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u8>, E> {
        self.checked(text.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<u8>, A::Error> {
        let path = self.path;
        let explain = |problem: String| A::Error::custom(format!("{path:?}: {problem}"));
        let Some(("base64", text)) = map.next_entry::<&str, String>()? else {
            return Err(explain(format!("an object here is {BASE64}")));
        };
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Err(explain(format!("an object here is {BASE64}")));
        }
        let data = STANDARD.decode(text);
        let data = data.map_err(|problem| explain(format!("this is not base64: {problem}")))?;
        self.checked(data)
    }
}

const BASE64: &str = "{\"base64\": \"...\"}";

/// Takes the members of the object one by one, so that each mistake has a position in the file, and
/// a path that occurs twice is one.
struct Members {
    max_bytes: usize,
}

impl<'de> Visitor<'de> for Members {
    type Value = BTreeMap<String, Vec<u8>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a path for each key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some(path) = map.next_key::<String>()? {
            let explain = |problem: String| A::Error::custom(format!("{path:?}: {problem}"));
            check_path(&path).map_err(explain)?;
            if all.contains_key(&path) {
                return Err(explain("this path occurs twice".to_owned()));
            }
            let max_bytes = self.max_bytes;
            let data = map.next_value_seed(DataOf { path: &path, max_bytes })?;
            all.insert(path, data);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_bytes_or_nothing() {
        let text = r#"{"/b/c": "text", "/a": null, "/b/d": {"base64": "AAH/"}, "/": "root"}"#;
        let Data(all) = Data::parse("d.json", text, 5).unwrap();
        let all: Vec<_> = all.iter().map(|(path, data)| (path.as_str(), &data[..])).collect();
        let bytes = [0, 1, 255];
        assert_eq!(all, [("/", &b"root"[..]), ("/a", b""), ("/b/c", b"text"), ("/b/d", &bytes)]);
    }

    #[test]
    fn a_mistake_is_reported_with_its_place() {
        let mut others = Vec::new();
        let deep = format!("{{\"/a\": {}", "[".repeat(100_000));
        for (text, expected, (line, column)) in [
            ("", "EOF while parsing a value", (1, 0)),
            ("[]", "invalid type: sequence, expected an object with a path for e", (1, 0)),
            ("{\"/a\": \"\",}", "trailing comma", (1, 11)),
            ("{\"/a\": \"\"", "EOF while parsing an object", (1, 9)),
            ("{\"/a\": \"\"}\n{", "trailing characters", (2, 1)),
            ("{\n \"a\": \"\"}", "\"a\": a path begins with /", (2, 4)),
            ("{\"/a/\": \"\"}", "\"/a/\": a component of the path is empty, ", (1, 6)),
            ("{\"/a/../b\": \"\"}", "\"/a/../b\": a component of the path is e", (1, 10)),
            ("{\"/a\\u0001\": \"\"}", "\"/a\\u{1}\": a component of the path", (1, 11)),
            ("{\"/zookeeper/x\": \"\"}", "\"/zookeeper/x\": the znodes below", (1, 15)),
            ("{\"/a\": 7\n}", "invalid type: integer `7`, expected the data of \"/a\": a ", (1, 8)),
            ("{\"/a\": []}", "invalid type: sequence, expected the data of \"/a\": a ", (1, 9)),
            ("{\"/a\": {}}", "\"/a\": an object here is {\"base64\": \"...\"}", (1, 9)),
            (
                "{\"/a\": {\"hex\": \"\"}}",
                "\"/a\": an object here is {\"base64\": \"...\"}",
                (1, 18),
            ),
            ("{\"/a\": {\"base64\": 7}}", "invalid type: integer `7`, expected a string", (1, 19)),
            ("{\"/a\": {\"base64\": \"?\"}\n}", "\"/a\": this is not base64: ", (1, 22)),
            ("{\"/a\": {\"base64\": \"\", \"b\": 1}}", "\"/a\": an object here is", (1, 25)),
            ("{\"/a\": \"1\",\n\"/a\": \"2\"}", "\"/a\": this path occurs twice", (2, 4)),
            (
                "{\"/a\": \"123456\"\n}",
                "\"/a\": the data has 6 bytes, and --jute-maxbuffer is 5",
                (1, 15),
            ),
            (&deep, "invalid type: sequence, expected the data of \"/a\"", (1, 8)),
        ] {
            let problem = Data::parse("d.json", text, 5).expect_err(expected);
            let place = format!("line {line} column {column}");
            let is_it =
                problem.starts_with(&format!("d.json: {expected}")) && problem.ends_with(&place);
            if !is_it {
                others.push(problem);
            }
        }
        assert_eq!(others, [""; 0]);
    }
}
