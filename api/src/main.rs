//! Prints the public API of a crate, one item per line, from the JSON that rustdoc has written.
//!
//! The listing leaves out blanket implementations and those of auto traits. The derived ones follow
//! at the end, in one line per type, such as `derived zk_recipes::LockState: Clone, Debug`, and then
//! what other threads may not have, such as `lacking zk_recipes::Cache: Sync`. `.ci/api` compares the listing with the snapshot in this folder.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::{env, error::Error, ffi::OsStr, process::ExitCode};

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION, PublicApi};

fn main() -> ExitCode {
    match list() {
        Ok(listing) => {
            print!("{listing}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zk-api: {error}");
            eprintln!(
                "zk-api: this release of public-api reads the JSON of {MINIMUM_NIGHTLY_RUST_VERSION} \
                 or a somewhat later nightly: for another toolchain, change the release in \
                 api/Cargo.toml"
            );
            ExitCode::FAILURE
        }
    }
}

fn list() -> Result<String, Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: zk-api RUSTDOC.json")?;
    let listed = api(builder(&path).omit_auto_derived_impls(true))?;
    let whole = api(builder(&path))?;
    let with_auto = api(builder(&path).omit_auto_trait_impls(false))?;
    let known: HashSet<String> = listed.items().map(ToString::to_string).collect();
    let derived = whole.items().map(ToString::to_string).filter(|item| !known.contains(item));
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in derived {
        if let Some((implemented, of)) = implementation(&item) {
            types.entry(of).or_default().insert(implemented);
        }
    }
    let derived = types.into_iter().map(|(of, traits)| {
        format!("derived {of}: {}\n", traits.into_iter().collect::<Vec<_>>().join(", "))
    });
    let lacking = with_auto.items().filter_map(|item| lacking(&item.to_string()));
    let lacking: BTreeSet<String> = lacking.collect();
    Ok(listed.to_string() + &derived.collect::<String>() + &lacking.into_iter().collect::<String>())
}

fn builder(path: &OsStr) -> Builder {
    Builder::from_rustdoc_json(path).omit_blanket_impls(true).omit_auto_trait_impls(true)
}

fn api(builder: Builder) -> Result<PublicApi, Box<dyn Error>> {
    Ok(builder.build()?)
}

/// Returns a line for `impl !core::marker::Sync for zk_session::Op<T>`.
fn lacking(item: &str) -> Option<String> {
    let (implemented, of) = item.strip_prefix("impl")?.split_once(" for ")?;
    let lacking = implemented.rsplit('!').next().filter(|it| it.len() < implemented.len())?;
    let name = lacking.rsplit("::").next().filter(|it| ["Send", "Sync"].contains(it))?;
    Some(format!("lacking {of}: {name}\n"))
}

/// Returns the trait without its modules, and the type, of a line such as
/// `impl<K: zk_recipes::kind::Kind> core::fmt::Debug for zk_recipes::Guard<K>`. A trait that only the
/// compiler uses is none.
fn implementation(item: &str) -> Option<(String, String)> {
    let rest = item.strip_prefix("impl")?;
    let (rest, _) = rest.split_once(" where ").unwrap_or((rest, ""));
    let (implemented, of) = rest.split_once(" for ")?;
    // What precedes the trait are parameters, and bounds of parameters have no spaces at their end.
    let implemented =
        implemented.strip_prefix(' ').or_else(|| Some(implemented.split_once("> ")?.1))?;
    let (name, arguments) = implemented.split_once('<').unwrap_or((implemented, ""));
    let name = name.rsplit("::").next()?;
    let arguments = if arguments.is_empty() { String::new() } else { format!("<{arguments}") };
    (name != "StructuralPartialEq").then(|| (format!("{name}{arguments}"), of.to_owned()))
}
