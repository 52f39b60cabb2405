//! The command as it is called.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.env_clear().current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).args(arguments);
    command.output().expect("the command runs")
}

fn printed(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    format!("{}\n{out}{err}", output.status.code().expect("it ended by itself"))
}

#[test]
fn check_says_what_is_good_and_what_is_wrong() {
    assert_eq!(printed(&run(&["check", "rules.yaml"])), "0\nrules.yaml: good\n");
    let wrong = printed(&run(&["check", "rules.yaml", "wrong.yaml"]));
    assert!(wrong.starts_with("1\nwrong.yaml:3:20: error: \"5/fortnight\" is not a quota"), "{wrong}");
    let missing = printed(&run(&["check", "no.yaml"]));
    assert!(missing.starts_with("1\nno.yaml: error: it cannot be read"), "{missing}");
    assert!(printed(&run(&["check"])).starts_with("2\n"));
}

#[test]
fn check_says_what_a_reload_would_change() {
    assert_eq!(
        printed(&run(&["check", "rules.yaml", "--against", "old.yaml"])),
        "0\nrules.yaml: good\nrules.yaml: changed login 3/min -> 5/min, what was spent counts; added all; removed gone\n"
    );
}

#[test]
fn explain_names_every_rule_and_says_why_it_applies_or_not() {
    let explained =
        printed(&run(&["explain", "--rules", "rules.yaml", "POST", "/login", "--peer", "203.0.113.9"]));
    assert!(explained.starts_with("0\n") && explained.contains("203.0.113.9"), "{explained}");
    for rule in ["all", "login", "rest"] {
        assert!(explained.contains(rule), "{explained}");
    }
    let usage = printed(&run(&["explain", "--rules", "rules.yaml", "GET", "/", "-H", "nothing"]));
    assert!(usage.starts_with("2\n") && usage.contains("name: value"), "{usage}");
}

#[test]
fn help_fits_a_terminal_and_completions_complete() {
    for arguments in [&["--help"][..], &["help", "check"], &["help", "explain"]] {
        let help = printed(&run(arguments));
        assert!(help.starts_with("0\n") && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&run(&["completions", shell])).contains("explain"));
    }
    assert!(printed(&run(&["schema"])).contains("json-schema.org"));
}

#[test]
fn a_broken_pipe_ends_quietly() {
    let shell = format!("{} schema | true; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_sluicegate"));
    let output = Command::new("bash").args(["-c", &shell]).output().expect("bash runs");
    assert_eq!(printed(&output), "0\n0\n");
}
