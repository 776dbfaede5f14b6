//! Writes the checked-in seeds: `cargo run --example write_seeds`.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, seed) in jute_codec_fuzz::seeds::all() {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("seeds are in directories"))?;
        fs::write(path, seed)?;
    }
    Ok(())
}
