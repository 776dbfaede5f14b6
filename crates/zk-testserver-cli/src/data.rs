//! The znodes that exist at the start, from a JSON file.
//!
//! The file is one object. Each key is a path, and its value is the data: a string, `null` for none,
//! or `{"base64": "…"}`. Parents that are not named are created without data.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use zk_testserver::TestServer;

/// Znodes by their paths, so that a parent precedes its children.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Data(BTreeMap<String, Vec<u8>>);

impl Data {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, with the file, and with the position or the path.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let Entries(entries) =
            serde_json::from_str(text).map_err(|problem| format!("{file}: {problem}"))?;
        let mut all = BTreeMap::new();
        for (path, value) in entries {
            let explain = |problem: String| format!("{file}: {path:?}: {problem}");
            check_path(&path).map_err(explain)?;
            let data = bytes(&value).map_err(explain)?;
            if all.insert(path.clone(), data).is_some() {
                return Err(explain("this path occurs twice".to_owned()));
            }
        }
        Ok(Self(all))
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

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Object(object) if object.len() == 1 => match object.get("base64") {
            Some(Value::String(text)) => {
                STANDARD.decode(text).map_err(|problem| format!("this is not base64: {problem}"))
            }
            _ => Err(FORMS.to_owned()),
        },
        Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_) => {
            Err(FORMS.to_owned())
        }
    }
}

const FORMS: &str = "the data is a string, null, or an object {\"base64\": \"...\"}";

/// The members of an object in their order, also those that occur twice, which a map would hide.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a path for each key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_bytes_or_nothing() {
        let text = r#"{"/b/c": "text", "/a": null, "/b/d": {"base64": "AAH/"}, "/": "root"}"#;
        let Data(all) = Data::parse("d.json", text).unwrap();
        let all: Vec<_> = all.iter().map(|(path, data)| (path.as_str(), &data[..])).collect();
        let bytes = [0, 1, 255];
        assert_eq!(all, [("/", &b"root"[..]), ("/a", b""), ("/b/c", b"text"), ("/b/d", &bytes)]);
    }

    #[test]
    fn a_mistake_is_reported_with_its_place() {
        for (text, expected) in [
            ("", "d.json: EOF while parsing a value at line 1 column 0"),
            ("[]", "d.json: invalid type: sequence, expected an object with a path for each key"),
            ("{\"/a\": 1,}", "d.json: trailing comma at line 1 column 10"),
            ("{\"a\": \"\"}", "d.json: \"a\": a path begins with /"),
            ("{\"/a/\": \"\"}", "d.json: \"/a/\": a component of the path is empty, "),
            ("{\"/a/../b\": \"\"}", "d.json: \"/a/../b\": a component of the path is empty, "),
            ("{\"/a\\u0001\": \"\"}", "d.json: \"/a\\u{1}\": a component of the path is empty, "),
            ("{\"/zookeeper/x\": \"\"}", "d.json: \"/zookeeper/x\": the znodes below /zookeeper"),
            ("{\"/a\": 7}", "d.json: \"/a\": the data is a string, null, or an object"),
            ("{\"/a\": {\"base64\": 7}}", "d.json: \"/a\": the data is a string, null, or an"),
            ("{\"/a\": {\"base64\": \"?\"}}", "d.json: \"/a\": this is not base64: "),
            ("{\"/a\": \"1\", \"/a\": \"2\"}", "d.json: \"/a\": this path occurs twice"),
        ] {
            let problem = Data::parse("d.json", text).expect_err(expected);
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
