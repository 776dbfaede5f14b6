//! Prints the public API of a crate, one item per line, from the JSON that rustdoc has written.
//!
//! The listing leaves out implementations that follow from other items: blanket implementations,
//! implementations of auto traits, and derived ones. `.ci/api` compares the listing with the
//! snapshot in this folder.

use std::{env, error::Error, process::ExitCode};

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION};

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
    let api = Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.to_string())
}
