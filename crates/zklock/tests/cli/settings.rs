//! Where options come from, and those of the connection.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::world::{World, code, scratch, see, start, zklock_at};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_what_neither_the_command_line_nor_the_environment_has() {
    let world = World::start().await;
    let file = scratch("zklock.toml");
    let text = format!("connect = '{}'\nidentity = 'wrong'\n[run]\nquiet = true\n", world.address);
    std::fs::write(&file, text + "lost-exit-code = 9\nidentity = 'file'\n").unwrap();
    let name = file.to_str().unwrap();
    let seen = async |options: &[&str]| {
        let mut command = zklock_at("", "run");
        command.env_remove("ZK_CONNECT").env("ZKLOCK_CONFIG", name).args(options);
        command.args(["/lock", env!("CARGO_BIN_EXE_zklock"), "status", "--json", "/lock"]);
        let seen = see(&mut command).await;
        assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""));
        let json: Value = serde_json::from_str(&seen.stdout).unwrap();
        json["locks"][0]["entries"][0]["identity"].as_str().unwrap().to_owned()
    };
    // The command inherits the variable, so `status` reads the same file.
    assert_eq!(seen(&[]).await, "file");
    assert_eq!(seen(&["--identity", "flag"]).await, "flag");

    std::fs::write(&file, "[run]\nwait = '1s'\n").unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_zklock"));
    let wrong = see(command.args(["--config", name, "run", "/lock", "true"])).await;
    assert_eq!(wrong.status.code(), Some(125));
    assert_eq!(
        wrong.stderr,
        format!("zklock: --config {name}: the verb run has no option --wait\n")
    );
    std::fs::remove_file(&file).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_zklock"));
    let missing = see(command.args([&*format!("--config={name}"), "ls"])).await;
    assert_eq!(missing.status.code(), Some(125));
    assert!(missing.stderr.contains("No such file"), "{}", missing.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_value_is_blamed_on_where_it_comes_from() {
    let file = scratch("wrong.toml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "[run]\ntimeout = 'soon'\n").unwrap();
    let in_file = format!("zklock: --timeout is set in {name}\n");
    let by_variable = "zklock: --timeout is set by the variable ZKLOCK_TIMEOUT\n";
    let set = [("ZKLOCK_CONFIG", name), ("ZKLOCK_TIMEOUT", "late")];
    for (variables, options, origin) in [
        (&set[..1], &[][..], Some(&*in_file)),
        (&set[1..], &[], Some(by_variable)),
        (&set, &[], Some(by_variable)),
        (&set, &["--timeout", "never"], None),
        (&set, &["--timeout=never"], None),
        (&set, &["-w0"], None),
    ] {
        let mut command = zklock_at("zk", "run");
        command.envs(variables.iter().copied()).args(options).args(["/lock", "true"]);
        let seen = see(&mut command).await;
        assert_eq!(seen.status.code(), Some(125));
        assert!(seen.stderr.contains("for '--timeout <TIME>'"), "{}", seen.stderr);
        match origin {
            Some(origin) => assert!(seen.stderr.ends_with(origin), "{}", seen.stderr),
            None => assert!(!seen.stderr.contains("is set"), "{}", seen.stderr),
        }
    }
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_every_user_can_read_is_warned_of() {
    let world = World::start().await;
    let secret = scratch("open-secret");
    std::fs::write(&secret, "ops:secret\n").unwrap();
    for (mode, is_warned) in [(0o600, false), (0o640, false), (0o644, true)] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = world.zklock("run");
        command.arg("--digest-file").arg(&secret).args(["/own", "true"]);
        let seen = see(&mut command).await;
        assert_eq!(seen.status.code(), Some(0));
        let warning = format!("its mode, {mode:o}, lets every user read it");
        assert_eq!(seen.stderr.contains(&warning), is_warned, "{}", seen.stderr);
        assert!(!seen.stderr.contains("secret\n"), "no secret is shown: {}", seen.stderr);
    }
    std::fs::remove_file(secret).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_are_told_the_verbs_and_the_options() {
    for shell in ["bash", "zsh", "fish"] {
        let seen = see(zklock_at("", "completions").arg(shell)).await;
        assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""));
        assert!(seen.stdout.contains("doctor"), "{shell}");
        assert!(seen.stdout.contains("kill-after"), "{shell}");
    }
    assert_eq!(code(zklock_at("", "completions").arg("ksh")).await, 125);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_owns_what_is_created_unless_the_acl_is_open() {
    let world = World::start().await;
    let secret = scratch("digest");
    std::fs::write(&secret, "ops:secret\n").unwrap();
    let own = ["--digest-file", secret.to_str().unwrap()];
    let run = |path: &str, options: &[&str]| {
        let mut command = world.zklock("run");
        command.args(options).args([path, "true"]);
        command
    };
    assert_eq!(code(&mut run("/own", &own)).await, 0);
    assert_eq!(code(&mut run("/own", &own)).await, 0);
    let stranger = see(&mut run("/own", &[])).await;
    assert_eq!(stranger.status.code(), Some(125));
    assert!(stranger.stderr.contains("/own"), "{}", stranger.stderr);
    assert_eq!(code(&mut run("/shared", &[&own[..], &["--acl", "open"]].concat())).await, 0);
    assert_eq!(code(&mut run("/shared", &[])).await, 0);
    // Without an identity, there is nobody to whom it could belong.
    assert_eq!(code(&mut run("/none", &["--acl", "creator"])).await, 125);

    for (content, part) in [("ops\n", "user:password"), ("a:b\nc:d\n", "one line")] {
        std::fs::write(&secret, content).unwrap();
        let wrong = see(&mut run("/own", &own)).await;
        assert_eq!(wrong.status.code(), Some(125));
        assert!(wrong.stderr.contains(part), "{}", wrong.stderr);
        assert!(!wrong.stderr.contains("c:d"), "no secret is shown: {}", wrong.stderr);
    }
    std::fs::remove_file(secret).unwrap();
}

#[cfg(feature = "sasl-digest-md5")]
#[tokio::test(flavor = "multi_thread")]
async fn sasl_owns_what_is_created_and_says_why_it_fails() {
    let config = zk_testserver::ServerConfig::default();
    let config = config.sasl_user("ops", "gehe:im").sasl_required(true);
    let world = World::with(config).await;
    let secret = scratch("sasl");
    let run = |world: &World, options: &[&str]| {
        let mut command = world.zklock("run");
        command.args(options).args(["/own", "true"]).env("ZKLOCK_SESSION_TIMEOUT", "4s");
        command
    };
    let file = secret.to_str().unwrap();
    let own = ["--sasl-file", file];
    std::fs::write(&secret, "ops:gehe:im\n").unwrap();
    assert_eq!(code(&mut run(&world, &own)).await, 0);
    assert_eq!(code(run(&world, &[]).env("ZKLOCK_SASL_FILE", file)).await, 0);
    let options = scratch("sasl-options");
    std::fs::write(&options, format!("sasl-file = {file:?}\n")).unwrap();
    assert_eq!(code(run(&world, &[]).env("ZKLOCK_CONFIG", &options)).await, 0);
    std::fs::remove_file(options).unwrap();
    // What it has created belongs to it.
    let mut doctor = world.zklock("doctor");
    let seen = see(doctor.args(own).args(["--json", "/own"])).await;
    let json: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!(json["locks"][0]["deleters"], Value::from(vec!["sasl:ops"]));

    let wrong = async |world: &World, options: &[&str], parts: &[&str]| {
        let seen = see(&mut run(world, options)).await;
        assert_eq!(seen.status.code(), Some(125), "{seen:?}");
        for part in parts {
            assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
        }
        assert!(!seen.stderr.contains("gehe") && !seen.stderr.contains("wrong"), "{seen:?}");
    };
    wrong(&world, &[], &["refused the credentials", "--sasl-file"]).await;
    let missing = ["--sasl-file", "/no-such-file"];
    wrong(&world, &missing, &["--sasl-file /no-such-file: No such file"]).await;
    std::fs::write(&secret, "ops\n").unwrap();
    wrong(&world, &own, &["--sasl-file", "one line, of the form user:password"]).await;
    std::fs::write(&secret, "ops:wrong\n").unwrap();
    wrong(&world, &own, &["cannot connect", "refused the credentials", "--sasl-file"]).await;
    std::fs::write(&secret, "nobody:wrong\n").unwrap();
    wrong(&world, &own, &["cannot connect", "refused the credentials", "--sasl-file"]).await;
    let without = World::start().await;
    std::fs::write(&secret, "ops:gehe:im\n").unwrap();
    wrong(&without, &own, &["the server has no SASL configuration"]).await;
    std::fs::remove_file(secret).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_kazoo_is_joined_with_its_names_only() {
    let world = World::start().await;
    for kind in ["fair", "write", "election"] {
        let path = format!("/{kind}");
        let kazoo = ["--naming", "kazoo", "--kind", kind];
        let mut holder = world.zklock("hold");
        let mut holder = start(holder.args(kazoo).args(["--no-stdin", &path]));
        holder.line().await;
        let entries = world.entries(&path);
        assert!(entries[0].contains("__lock__"), "{entries:?}");
        // The two exclude each other.
        let mut second = world.zklock("run");
        assert_eq!(code(second.args(kazoo).args(["--try", &path, "true"])).await, 124);
        // Those with other names would not, so they are refused.
        let mut other = world.zklock("run");
        let other = see(other.args(["--kind", kind, "-w", "5s", &path, "true"])).await;
        assert_eq!(other.status.code(), Some(125), "{kind}: {other:?}");
        let sentence = format!(
            "zklock: {path}: the znode {:?} belongs to a lock or a writer of kazoo; all contenders of a \
             path need the same --kind and --naming\n",
            entries[0]
        );
        assert!(other.stderr.ends_with(&sentence), "{kind}: {other:?}");
    }
    let mut reader = world.zklock("hold");
    let reader = reader.args(["--naming", "kazoo", "--kind", "read", "--no-stdin", "/readers"]);
    start(reader).line().await;
    assert!(world.entries("/readers")[0].contains("__rlock__"));
    for kind in ["exclusive", "semaphore=2"] {
        let mut other = world.zklock("run");
        other.args(["--kind", kind, "/x", "true"]).env("ZKLOCK_NAMING", "kazoo");
        let seen = see(&mut other).await;
        assert_eq!(seen.status.code(), Some(125));
        assert!(seen.stderr.contains("only fair, read, write and election"), "{seen:?}");
    }
}
