//! The table of operations in the page about the protocol, which is made of the schema of the codec's
//! tests.

#[path = "../../../crates/jute-codec/tests/reference/schema.rs"]
#[allow(dead_code, reason = "the types of the fields are not shown")]
mod schema;

use self::schema::{Content, Operation, fields, operations};
use super::{File, listings::text};

pub(crate) const PAGE: &str = "docs/internals/protocol.md";

const HEAD: &str = "| type | name | request | reply | since |\n|---|---|---|---|---|\n";

/// Returns the page as it should be.
///
/// # Panics
///
/// If the page has no such table.
pub(crate) fn page(files: &[File]) -> String {
    let (before, rest) = text(files, PAGE).split_once(HEAD).expect("the page has the table");
    let end = rest.find("\n\n").expect("text follows the table");
    let rows: Vec<String> = operations().iter().map(row).collect();
    format!("{before}{HEAD}{}{}", rows.join("\n"), &rest[end..])
}

fn row(operation: &Operation) -> String {
    let Operation { op, name, request, reply, since, .. } = operation;
    let cells = [&op.to_string(), *name, &shown(*request), &shown(*reply), since];
    let cells = cells.map(|cell| if cell.is_empty() { " |".into() } else { format!(" {cell} |") });
    format!("|{}", cells.concat())
}

/// Names the fields.
fn shown(content: Content) -> String {
    match content {
        Content::List => "list".to_owned(),
        Content::Nothing => String::new(),
        Content::Record(record) => {
            fields(record).iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
        }
    }
}
