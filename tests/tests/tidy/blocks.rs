//! Checks blocks of pages that no program reads: manifests in `toml`, and commands in `sh` and
//! `console`. A block after a mark `<!-- file: … -->` belongs to a crate that CI builds.

use toml::{Table, Value};

use super::File;

const FILE_MARK: &str = "<!-- file: ";

/// The settings of `zklock` are not a manifest. A test of that program reads this block.
const SETTINGS: &str = "docs/programs/zklock.md";

/// Commands of the systems of readers, and what stands for a program of theirs.
const COMMANDS: &[&str] =
    &["app", "backup.sh", "cd", "curl", "docker", "echo", "export", "git", "sed", "sh", "true"];

/// Commands of cargo that the pages use, apart from those in `.cargo/config.toml`.
const CARGO: &[&str] = &["build", "install", "run", "test"];

/// Programs of ours, with their packages.
const PROGRAMS: &[(&str, &str)] = &[("zklock", "zklock"), ("zk-testserver", "zk-testserver-cli")];

/// Flags of cargo itself.
const CARGO_FLAGS: &[&str] =
    &["--example", "--manifest-path", "--path", "--release", "--test", "--workspace"];

/// Describes each block that names something that does not exist.
pub(crate) fn wrong(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (language, block) in blocks(&page.text) {
            let found = match language {
                "toml" if page.path != SETTINGS => manifest(files, &block),
                "sh" => commands(&block).flat_map(|it| command(files, &it)).collect(),
                "console" => {
                    let typed = block.lines().filter_map(|line| line.strip_prefix("$ "));
                    let typed = typed.collect::<Vec<_>>().join("\n");
                    commands(&typed).flat_map(|it| command(files, &it)).collect()
                }
                _ => continue,
            };
            problems.extend(found.into_iter().map(|what| format!("{}: {what}", page.path)));
        }
    }
    problems
}

/// Returns the fenced blocks of a page, with their languages.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if !before.starts_with(FILE_MARK) {
                blocks.push((language, block.join("\n")));
            }
        }
        before = line;
    }
    blocks
}

/// Checks that a manifest names crates, versions and features that we use or have.
fn manifest(files: &[File], block: &str) -> Vec<String> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let table = |text: &str| text.parse::<Table>().unwrap_or_default();
    let Ok(manifest) = block.parse::<Table>() else { return vec!["this is no TOML".to_owned()] };
    let lock = table(text("Cargo.lock").unwrap_or_default());
    let locked = lock.get("package").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let sections = ["dependencies", "dev-dependencies"];
    let mut dependencies = Table::new();
    for (name, value) in manifest {
        if sections.contains(&&*name) {
            dependencies.extend(value.as_table().cloned().unwrap_or_default());
        } else if name != "package" {
            // A line for a section that the text around it names.
            dependencies.insert(name, value);
        }
    }
    let mut problems = Vec::new();
    for (name, value) in &dependencies {
        let version = value.as_str().or_else(|| value.get("version")?.as_str());
        let is_it = |package: &&Value| {
            let is = |key: &str, fits: &dyn Fn(&str) -> bool| {
                package.get(key).and_then(Value::as_str).is_some_and(fits)
            };
            let fits = |locked: &str| {
                version.is_none_or(|it| format!("{locked}.").starts_with(&format!("{it}.")))
            };
            is("name", &|it| it == name) && is("version", &fits)
        };
        if !locked.iter().any(|package| is_it(&package)) {
            problems.push(format!("there is no {name} {}", version.unwrap_or_default()));
        }
        let own = text(&format!("crates/{name}/Cargo.toml")).map(table);
        let own = own.as_ref().and_then(|it| it.get("features")?.as_table());
        let features = value.get("features").and_then(Value::as_array);
        for feature in features.into_iter().flatten().filter_map(Value::as_str) {
            // Those of other crates are known only if a manifest of ours has them too.
            let is_used = |file: &File| {
                let mut lines =
                    file.text.lines().filter(|line| line.starts_with(&format!("{name} =")));
                file.path.ends_with("Cargo.toml")
                    && lines.any(|line| line.contains(&format!("\"{feature}\"")))
            };
            let exists = match own {
                Some(own) => own.contains_key(feature),
                None => files.iter().any(is_used),
            };
            if !exists {
                problems.push(format!("{name} has no feature {feature}"));
            }
        }
    }
    problems
}

/// Returns the commands of a block, each with its words.
fn commands(block: &str) -> impl Iterator<Item = Vec<String>> {
    let block = block.replace("\\\n", " ");
    let lines: Vec<String> = block.lines().map(str::to_owned).collect();
    let code = lines.into_iter().map(|line| line.split(" #").next().unwrap_or_default().to_owned());
    let single = code.flat_map(|line| line.split(" && ").map(str::to_owned).collect::<Vec<_>>());
    let words = single.map(|line| line.split_whitespace().map(str::to_owned).collect());
    words.filter(|words: &Vec<String>| !words.is_empty())
}

/// Describes what a command names that does not exist. A command may begin another one.
fn command(files: &[File], words: &[String]) -> Vec<String> {
    let is_setting = |word: &&String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let words: Vec<&str> = words.iter().skip_while(is_setting).map(String::as_str).collect();
    let Some((&first, rest)) = words.split_first() else { return Vec::new() };
    let program = PROGRAMS.iter().find(|(program, _)| *program == first);
    if let Some((_, package)) = program {
        return flags(files, package, rest);
    }
    if first == "cargo" {
        return cargo(files, rest);
    }
    if !first.contains('/') {
        let is_known = COMMANDS.contains(&first);
        return (!is_known).then(|| format!("what is {first}?")).into_iter().collect();
    }
    let Some(script) = files.iter().find(|file| file.path == first) else {
        return vec![format!("there is no {first}")];
    };
    let nested = rest.iter().position(|word| *word == "cargo" || word.starts_with(".ci/"));
    let (own, nested) = rest.split_at(nested.unwrap_or(rest.len()));
    let nested: Vec<String> = nested.iter().map(|word| (*word).to_owned()).collect();
    let unknown = own.iter().filter(|word| word.starts_with("--") && !script.text.contains(**word));
    let unknown = unknown.map(|flag| format!("{first} has no {flag}"));
    unknown.chain(command(files, &nested)).collect()
}

fn cargo(files: &[File], words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let has = |path: &str| files.iter().any(|file| file.path == path);
    let aliases = files.iter().find(|file| file.path == ".cargo/config.toml");
    let is_alias =
        |name: &str| aliases.is_some_and(|file| file.text.contains(&format!("\n{name} = ")));
    let Some((&name, words)) = words.split_first() else { return vec!["cargo alone".to_owned()] };
    if !CARGO.contains(&name) && !is_alias(name) {
        problems.push(format!("cargo has no {name}"));
    }
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (own, others) = words.split_at(end);
    let mut package = None;
    for pair in own.iter().zip(own.iter().skip(1).chain([&""])) {
        let exists = match pair {
            (&"-p", name) => {
                package = Some(*name);
                folder(files, name).is_some()
            }
            (&"--example", name) => {
                let shows = |file: &File| file.path.ends_with(&format!("/examples/{name}.rs"));
                files.iter().any(shows)
            }
            (&"--test", name) => {
                let places = ["tests/tests", "tests/exhaustive/tests", "tests/processes/tests"];
                let is_there = |place: &&str| {
                    has(&format!("{place}/{name}.rs")) || has(&format!("{place}/{name}/main.rs"))
                };
                places.iter().any(is_there)
            }
            (&"--path", folder) => has(&format!("{folder}/Cargo.toml")),
            // The folders of readers.
            (&"--manifest-path", path) => path.starts_with(['/', '.']) || has(path),
            (flag, _) => !flag.starts_with("--") || CARGO_FLAGS.contains(flag),
        };
        if !exists {
            problems.push(format!("cargo {name}: there is no {} {}", pair.0, pair.1));
        }
    }
    if let (Some(package), "run") = (package, name) {
        problems.extend(flags(files, package, others.split_first().map_or(&[], |(_, rest)| rest)));
    }
    problems
}

/// Describes the options of a program of ours that its sources do not have, up to the command that
/// the program runs.
fn flags(files: &[File], package: &str, words: &[&str]) -> Vec<String> {
    let Some(folder) = folder(files, package) else { return vec![format!("no {package}")] };
    let (own, others) = match words.iter().position(|word| *word == "--") {
        Some(end) => words.split_at(end),
        None => (words, &[][..]),
    };
    let sources = || files.iter().filter(|it| it.path.starts_with(&format!("{folder}/src/")));
    let has = |flag: &str| {
        let name = flag.trim_start_matches('-');
        let field = format!("{}:", name.replace('-', "_"));
        sources().any(|file| {
            file.text.contains(&format!("\"{flag}\""))
                || file.text.contains(&format!("\"{name}\""))
                || file.text.contains(&field)
        })
    };
    let options = own.iter().filter(|word| word.starts_with("--"));
    let names = options.map(|word| word.split('=').next().unwrap_or(word));
    let unknown = names.filter(|flag| !has(flag)).map(|flag| format!("{package} has no {flag}"));
    let nested: Vec<String> = others.iter().skip(1).map(|word| (*word).to_owned()).collect();
    unknown.chain(command(files, &nested)).collect()
}

/// Returns the folder of a package of the workspace.
fn folder<'a>(files: &'a [File], package: &str) -> Option<&'a str> {
    let named = format!("name = \"{package}\"");
    let is_it = |file: &&File| file.text.lines().any(|line| line == named);
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.filter(is_it).find_map(|file| file.path.strip_suffix("/Cargo.toml"))
}

mod tests {
    //! Tests that a block that names what does not exist is noticed.

    use super::{File, wrong};

    const TREE: &[(&str, &str)] = &[
        (".cargo/config.toml", "[alias]\nslow = \"test\"\n"),
        (
            "Cargo.lock",
            "[[package]]\nname = \"glow\"\nversion = \"1.12.3\"\n\n[[package]]\nname = \"lamp\"\nversion = \"0.1.0\"\n",
        ),
        (
            "crates/lamp/Cargo.toml",
            "[package]\nname = \"lamp\"\n\n[features]\nred = []\n\n[dependencies]\nglow = { version = \"1\", features = [\"warm\"] }\n",
        ),
        ("crates/lamp/examples/on.rs", ""),
        ("crates/lamp/src/main.rs", "struct Options {\n    dim_to: u8,\n}\n"),
        ("tests/run", "case $1 in --twice) ;; esac"),
        ("tests/tests/burns/main.rs", ""),
    ];

    fn problems(language: &str, block: &str) -> usize {
        let page = format!("# Lamps\n\n```{language}\n{block}\n```\n");
        let mut files = vec![File { path: "docs/lamp.md".into(), text: page }];
        files.extend(
            TREE.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }),
        );
        wrong(&files).len()
    }

    #[test]
    fn blocks_that_name_what_exists_are_accepted() {
        for (language, block) in [
            ("toml", "lamp = \"0.1\""),
            (
                "toml",
                "[package]\nname = \"mine\"\n\n[dependencies]\nlamp = { git = \"IT\", features = [\"red\"] }\n\n[dev-dependencies]\nglow = { version = \"1.12\", features = [\"warm\"] }",
            ),
            ("sh", "export IT=1 && cargo test --workspace    # all\n\nIT=2 cargo slow"),
            ("sh", "cargo run --release -p lamp --example on\ncargo run -p lamp -- --dim-to 2"),
            ("sh", "tests/run --twice \\\n    cargo test --test burns -- --nocapture"),
            ("console", "$ echo on\noff\n$ tests/run\ncargo fly"),
            ("text", "fly away"),
        ] {
            assert_eq!(problems(language, block), 0, "{block}");
        }
        let page = "<!-- file: Cargo.toml -->\n```toml\n[dependencies]\nfly = \"9\"\n```\n";
        assert!(wrong(&[File { path: "a.md".into(), text: page.into() }]).is_empty());
    }

    #[test]
    fn blocks_that_name_something_else_are_noticed() {
        for (language, block) in [
            ("toml", "lamp = 0.1.0"),
            ("toml", "lamp = \"0.2\""),
            ("toml", "lamps = \"0.1\""),
            ("toml", "glow = \"1.1\""),
            ("toml", "lamp = { version = \"0.1\", features = [\"blue\"] }"),
            ("toml", "[dev-dependencies]\nglow = { version = \"1\", features = [\"cold\"] }"),
            ("sh", "fly away"),
            ("sh", "IT=1 cargo fly"),
            ("sh", "cargo test -p lamps"),
            ("sh", "cargo run -p lamp --example off"),
            ("sh", "cargo run -p lamp -- --dim-by 2"),
            ("sh", "cargo test --test shines"),
            ("sh", "cargo test --everything"),
            ("sh", "cargo install --path crates/lamps"),
            ("sh", "tests/walk"),
            ("sh", "tests/run --thrice"),
            ("sh", "echo on && tests/run --twice cargo fly"),
            ("console", "$ tests/walk\nit walks"),
        ] {
            assert_eq!(problems(language, block), 1, "{block}");
        }
    }
}
