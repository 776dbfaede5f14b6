//! Where options come from, and those of the connection.

use serde_json::Value;

use crate::world::{World, code, scratch, see, zklock_at};

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
