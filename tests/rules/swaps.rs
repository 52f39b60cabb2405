//! What befalls a file that is followed: halves, faults, deletions, links that move. The last good one stays in force, and the last
//! valid one takes effect.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use http::{Request, Response};
use sluicegate::MemoryStore;
use sluicegate::rules::Rules;
use sluicegate_tests::process::without_root;

use crate::rules::folder::Folder;

const LONG: Duration = Duration::from_secs(60);

/// Good rules whose limit is their mark.
fn good(mark: u64) -> String {
    format!(
        "version: 1\npolicies:\n  a: {{ quota: {mark}/h }}\nrules:\n  - {{ name: all, limit: a, key: everybody }}\n"
    )
}

/// Rules that are followed, and what is heard of them: what is wrong, or nothing where something took effect.
struct Followed {
    folder: Folder,
    rules: Rules,
    news: Receiver<Option<String>>,
}

impl Followed {
    fn new() -> Self {
        let folder = Folder::with(&good(1));
        let rules = folder.open(MemoryStore::new());
        let (tell, news) = channel();
        rules.listen(move |news| {
            // The test may be over.
            _ = tell.send(news.err().map(ToString::to_string));
        });
        rules.follow();
        Self { folder, rules, news }
    }

    /// The mark of the file that is in force.
    fn in_force(&self) -> u64 {
        let limits = self.rules.limits();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = match runtime.block_on(limits.decide(&Request::new(()))) {
            Ok(admitted) => admitted.leave(Response::new(())),
            Err(refused) => refused
                .respond(&Request::new(()), &sluicegate::respond::ProblemJson::new())
                .map(|_: bytes::Bytes| ()),
        };
        response.headers()["x-ratelimit-limit"].to_str().unwrap().parse().unwrap()
    }

    /// Waits until the follower says that the file is wrong.
    fn is_wrong(&self, what: &str) -> String {
        let news = self.news.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what}: nothing is heard"));
        news.unwrap_or_else(|| panic!("{what}: it took effect"))
    }

    /// Waits until this file is in force, and says how long that took.
    fn takes_effect(&self, mark: u64) -> Duration {
        let began = Instant::now();
        while self.in_force() != mark {
            let left =
                LONG.checked_sub(began.elapsed()).unwrap_or_else(|| panic!("{mark} does not take effect"));
            _ = self.news.recv_timeout(left);
        }
        began.elapsed()
    }
}

#[test]
fn each_fault_leaves_the_last_good_file_in_force_until_there_is_a_good_one_again() {
    let followed = Followed::new();
    let path = followed.folder.file();
    let text = good(9_999);
    let mut longest = Duration::ZERO;
    type Fault<'a> = (&'a str, &'a str, Box<dyn Fn() + 'a>);
    let faults: [Fault<'_>; 8] = [
        ("a truncated write", "", Box::new(|| followed.folder.write(&text[..text.len() / 2]))),
        ("an empty file", "empty", Box::new(|| followed.folder.write(""))),
        ("a wrong value", "fortnight", Box::new(|| followed.folder.write(&text.replace("/h", "/fortnight")))),
        ("a file that is gone", "cannot be read", Box::new(|| fs::remove_file(&path).unwrap())),
        ("no text", "not UTF-8", Box::new(|| fs::write(&path, [0xff, 0xfe, 0x00]).unwrap())),
        ("too much of it", "bytes", Box::new(|| followed.folder.write(&"#".repeat(2 << 20)))),
        (
            "rules that limit nothing",
            "no rules",
            Box::new(|| followed.folder.write("version: 1\nrules: []\n")),
        ),
        (
            "a folder in its place",
            "not a file",
            Box::new(|| {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }),
        ),
    ];
    for (mark, (what, said, fault)) in (2..).zip(&faults) {
        fault();
        let problem = followed.is_wrong(what);
        assert!(problem.contains(said), "{what}: {problem}");
        assert_eq!(followed.in_force(), mark - 1, "{what}");
        if path.is_dir() {
            fs::remove_dir(&path).unwrap();
        }
        followed.folder.swap(&good(mark));
        longest = longest.max(followed.takes_effect(mark));
    }
    println!("a good file took effect after {longest:?} at the latest");
}

#[test]
fn a_file_that_may_not_be_read_any_more_stays_in_force_until_it_may() {
    without_root(|| {
        let followed = Followed::new();
        let may = |mode| {
            fs::set_permissions(followed.folder.file(), fs::Permissions::from_mode(mode))
                .expect("it is ours");
        };
        may(0o000);
        let problem = followed.is_wrong("chmod 000");
        assert!(problem.contains("Permission denied"), "{problem}");
        assert_eq!(followed.in_force(), 1);
        may(0o644);
        assert_eq!(followed.news.recv_timeout(LONG), Ok(None), "it is right again");
        assert_eq!(followed.in_force(), 1);
    });
}

/// As Kubernetes does: the file is a link into `..data`, a link to a folder, which is swapped.
#[test]
fn a_hundred_swaps_a_second_end_in_the_last_valid_file_and_only_good_ones_are_ever_in_force() {
    let followed = Followed::new();
    let folder = followed.folder.path();
    let link = |to: &str, from: &str| {
        let temporary = folder.join("link");
        symlink(to, &temporary).unwrap();
        fs::rename(&temporary, folder.join(from)).unwrap();
    };
    let version = |number: u64, text: &str| {
        let name = format!("..{number}");
        fs::create_dir(folder.join(&name)).unwrap();
        fs::write(folder.join(&name).join("rules.yaml"), text).unwrap();
        link(&name, "..data");
    };
    version(2, &good(2));
    link("..data/rules.yaml", "rules.yaml");
    let mut seen = Vec::new();
    for number in 3..303 {
        let text = good(number);
        match number % 3 {
            0 => version(number, &text),
            1 => version(number, &text[..text.len() / 2]),
            _ => version(number, &text.replace("/h", "/fortnight")),
        }
        // At this pace, and news of it is no hindrance.
        _ = followed.news.recv_timeout(Duration::from_millis(10));
        seen.push(followed.in_force());
    }
    version(1_000, &good(1_000));
    let took = followed.takes_effect(1_000);
    seen.dedup();
    assert!(seen.iter().all(|mark| *mark <= 2 || mark % 3 == 0), "{seen:?}");
    assert!(seen.is_sorted(), "{seen:?}");
    println!("of 300 swaps {} were in force, and the last one after {took:?}", seen.len());
}
