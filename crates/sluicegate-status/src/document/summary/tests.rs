use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_observed::{InFlightSnapshot, Rate};

use crate::document::shape::{GivenQuotas, GivenShown, OverrideShown};
use crate::document::summary::*;

/// 14:00 on 21 November 2026.
fn two_o_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_269_600)
}

/// A policy that is open for an hour, and nothing was asked.
fn policy(name: &str) -> PolicyStatus {
    let minute = |number: u64| {
        let mut minute = Minute::default();
        minute.at = two_o_clock() + Duration::from_secs(60 * number);
        minute
    };
    PolicyStatus {
        name: name.to_owned(),
        algorithm: "gcra".to_owned(),
        quotas: Vec::new(),
        mode: "enforce".to_owned(),
        hidden: false,
        over: None,
        given: Vec::new(),
        on_exceeded: "deny",
        on_outage: "local".to_owned(),
        in_outage: None,
        per_second: Rate::default(),
        minutes: (0..59).map(minute).collect(),
        minute: minute(59),
        waiting: 0,
        near_share: 0.0,
        suspended_seen: 0,
        key_quotas: 0,
        key_quotas_refused: 0,
        tighter: None,
        suspends: false,
        offenders: Vec::new(),
        crowd: false,
        askers: Vec::new(),
        budgets: Vec::new(),
    }
}

/// One that has refused this many a second since this minute.
fn refusing(name: &str, rejected: f64, since: usize) -> PolicyStatus {
    let mut policy = policy(name);
    policy.per_second.rejected = rejected;
    policy.minute.rejected = 1;
    policy.minutes[since..].iter_mut().for_each(|minute| minute.rejected = 1);
    policy
}

fn offender(key: &str, kind: &'static str, share: f64) -> OffenderShown {
    OffenderShown {
        key: key.to_owned(),
        kind,
        reference: String::new(),
        rejected: 9,
        error: 0,
        share,
        suspended_until: None,
        is_known: true,
    }
}

fn store(name: &str, state: StoreState, p99_us: Option<u64>) -> StoreSnapshot {
    let mut store = StoreSnapshot::default();
    (store.name, store.state, store.p99) = (name.to_owned(), state, p99_us.map(Duration::from_micros));
    store
}

/// A limit on requests at once that refuses this many a second.
fn at_once(name: &str, rejected: f64) -> InFlightSnapshot {
    let mut limit = InFlightSnapshot::default();
    (limit.name, limit.per_second.rejected) = (name.to_owned(), rejected);
    limit
}

fn notice(about: &str, text: Option<&str>, is_alarm: bool) -> NoticeShown {
    NoticeShown {
        about: about.to_owned(),
        since: "2026-11-21T14:41:07.000Z".to_owned(),
        text: text.map(str::to_owned),
        is_alarm,
    }
}

fn over() -> OverrideShown {
    OverrideShown {
        new_keys: None,
        by: "ada".to_owned(),
        until: "2026-11-21T15:40:00.000Z".to_owned(),
        version: 1,
        shared: true,
        own_quotas: Vec::new(),
        own_mode: "enforce".to_owned(),
    }
}

fn document(policies: Vec<PolicyStatus>) -> Document {
    Document {
        version: 1,
        at: "2026-11-21T14:59:30.000Z".to_owned(),
        instance: "web-3".to_owned(),
        uptime_seconds: 9_000,
        notices: Vec::new(),
        stores: vec![store("memory", StoreState::Ok, Some(5))],
        policies,
        in_flight: Vec::new(),
        adaptive: Vec::new(),
        shared: Vec::new(),
        rooms: Vec::new(),
        events: Vec::new(),
    }
}

#[track_caller]
fn assert_says(document: &Document, expected: &str) {
    assert_eq!(sentence(document), expected);
}

#[test]
fn nothing_is_asked_or_refused() {
    let mut known = document(Vec::new());
    assert_says(&known, "No policy is open yet; the store answers within 5 µs; nothing is unusual.");
    known.stores = vec![store("memory", StoreState::Ok, None)];
    known.policies = vec![policy("login")];
    assert_says(&known, "Nothing was asked in the last hour; the store answers; nothing is unusual.");
    known.uptime_seconds = 60;
    assert_says(&known, "Nothing has been asked yet; the store answers; nothing is unusual.");
    known.policies[0].minutes[7].allowed = 1;
    assert_says(
        &known,
        "Nothing is refused; login let in 1 request in the last hour; the store answers; nothing is unusual.",
    );
    known.policies[0].minutes[7].allowed = 1_200;
    assert_says(
        &known,
        "Nothing is refused; login let in 1,200 requests in the last hour; the store answers; nothing is unusual.",
    );
    known.policies[0].per_second.allowed = 12.44;
    assert_says(
        &known,
        "Nothing is refused; login lets in 12.4 a second; the store answers; nothing is unusual.",
    );
    known.policies.push(policy("api"));
    known.stores.push(store("redis", StoreState::Ok, Some(2_000)));
    assert_says(
        &known,
        "Nothing is refused; login lets in 12.4 a second, the most of 2 policies; all 2 stores answer within 2.0 ms; nothing is unusual.",
    );
}

#[test]
fn refusals_name_their_key_and_their_beginning() {
    let mut known = document(vec![refusing("login", 0.7, 40), policy("api")]);
    let end = "; the store answers within 5 µs; nothing else is unusual.";
    let mut says = |of: Vec<OffenderShown>, crowd, whom: &str| {
        known.policies[0].offenders = of;
        known.policies[0].crowd = crowd;
        assert_says(&known, &format!("login refuses 0.7 a second since 14:40 UTC{whom}{end}"));
    };
    let address = |share| offender("127.0.0.1", "address", share);
    says(vec![], false, "");
    says(vec![], true, ", of many keys, none of which stands out");
    says(vec![address(1.0)], false, ", all of it one address, 127.0.0.1");
    says(vec![address(0.614), address(0.2)], false, ", 61 % of it one address, 127.0.0.1");
    says(vec![offender("\"acme\"", "name", 0.9)], false, ", 90 % of it one key, \"acme\"");
    says(vec![offender("ff15b768", "digest", 1.0)], false, ", all of it one key, digest ff15b768");
    says(vec![address(0.4), address(0.3), address(0.1)], false, ", 80 % of it 3 keys, first 127.0.0.1");
    says(vec![address(0.12)], true, ", of many keys; most of one key, 12 % of it, 127.0.0.1");
}

#[test]
fn a_row_of_refusals_begins_before_its_short_pauses_and_after_a_long_one() {
    let began = |rejected: &[usize]| {
        let mut policy = policy("login");
        policy.per_second.rejected = 1.0;
        policy.minute.rejected = 1;
        rejected.iter().for_each(|minute| policy.minutes[*minute].rejected = 1);
        sentence(&document(vec![policy])).split(';').next().unwrap_or_default().to_owned()
    };
    assert_eq!(began(&[58]), "login refuses 1.0 a second since 14:58 UTC");
    assert_eq!(began(&[50, 53, 56]), "login refuses 1.0 a second since 14:50 UTC");
    assert_eq!(began(&[49, 53, 56]), "login refuses 1.0 a second since 14:53 UTC");
    assert_eq!(began(&[]), "login refuses 1.0 a second since 14:59 UTC");
    assert_eq!(began(&(0..59).collect::<Vec<_>>()), "login refuses 1.0 a second for an hour or longer");
}

#[test]
fn other_policies_are_named_and_those_in_shadow_refuse_nothing() {
    let mut known = document(vec![refusing("login", 0.2, 58), refusing("api", 3.0, 58)]);
    let end = "; the store answers within 5 µs; nothing else is unusual.";
    assert_says(
        &known,
        &format!("api refuses 3.0 a second since 14:58 UTC; login refuses 0.2 a second{end}"),
    );
    known.policies.push(refusing("search", 0.1, 58));
    assert_says(
        &known,
        &format!(
            "api refuses 3.0 a second since 14:58 UTC; login refuses 0.2 a second; search refuses 0.1 a second{end}"
        ),
    );
    for policy in &mut known.policies {
        policy.mode = "shadow".to_owned();
    }
    assert_says(
        &known,
        &format!(
            "Nothing was asked in the last hour; api would refuse 3.0 a second if it were enforced{end}"
        ),
    );
    known.policies[1].minutes[3].allowed = 2;
    assert_says(
        &known,
        &format!(
            "Nothing is refused; api let in 2 requests in the last hour, the most of 3 policies; api would refuse 3.0 a second if it were enforced{end}"
        ),
    );
}

#[test]
fn what_is_over_is_said_to_be_over() {
    let mut known = document(vec![policy("login")]);
    known.policies[0].minutes[31].rejected = 1;
    let end = "; the store answers within 5 µs; nothing is unusual.";
    assert_says(
        &known,
        &format!(
            "Nothing is refused now; login refused 1 request in the last hour, the last at 14:31 UTC{end}"
        ),
    );
    known.policies[0].minutes[12].rejected = 6;
    let start = "Nothing is refused now; login refused 7 requests in the last hour, the last at 14:31 UTC";
    assert_says(&known, &format!("{start}{end}"));
    known.policies.push(policy("api"));
    known.policies[1].minutes[40].rejected = 3;
    assert_says(&known, &format!("{start}; api refused 3{end}"));
}

#[test]
fn refusals_of_limits_at_once_and_of_an_outage_are_told_with_their_reason() {
    let mut known = document(vec![refusing("login", 0.2, 58), policy("api")]);
    let end = "; the store answers within 5 µs; nothing else is unusual.";
    known.in_flight = vec![at_once("uploads", 2.0)];
    let uploads = "uploads refuses 2.0 a second because its permits are in use";
    assert_says(&known, &format!("{uploads}; login refuses 0.2 a second{end}"));
    known.policies[0] = policy("login");
    assert_says(&known, &format!("{uploads}{end}"));
    known.in_flight.clear();
    known.policies[1] = refusing("api", 3.0, 58);
    known.policies[1].per_second.outage = 1.0;
    let start = "api refuses 4.0 a second since 14:58 UTC";
    assert_says(&known, &format!("{start}, 1.0 of them because the store does not answer{end}"));
    // The keys that it refused before have nothing to do with that.
    known.policies[1].offenders = vec![offender("127.0.0.1", "address", 1.0)];
    known.policies[1].per_second.rejected = 0.0;
    assert_says(
        &known,
        "api refuses 1.0 a second since 14:58 UTC, all because the store does not answer; the store answers within 5 µs; nothing else is unusual.",
    );
    // What another policy refuses is no refusal of this one, and more than three others are counted.
    known.policies[0].per_second.other_refused = 9.0;
    known.policies[1] = refusing("api", 3.0, 58);
    known.policies.extend(["a", "b", "c", "d", "e"].map(|name| refusing(name, 0.1, 58)));
    let each = "; a refuses 0.1 a second; b refuses 0.1 a second; c refuses 0.1 a second; 2 more do so, too";
    assert_says(&known, &format!("api refuses 3.0 a second since 14:58 UTC{each}{end}"));
}

#[test]
fn a_store_that_does_not_answer_is_named_with_its_last_answer_and_who_decides_meanwhile() {
    let mut known = document(vec![policy("login"), policy("api")]);
    known.stores = vec![store("redis", StoreState::Down, None), store("memory", StoreState::Ok, None)];
    let start = "Nothing was asked in the last hour; the store redis does not answer";
    assert_says(&known, &format!("{start}; this instance decides by its share of the quotas."));
    known.stores[0] = store("redis", StoreState::Fallback, Some(3_000));
    known.stores[0].answered_at = Some(two_o_clock() + Duration::from_secs(62));
    let last = " (it last did at 14:01:02 UTC), and is asked on trial only";
    known.policies[0].on_outage = "deny".to_owned();
    assert_says(&known, &format!("{start}{last}; the table says what each policy does meanwhile."));
    known.policies.pop();
    known.stores[1].state = StoreState::Down;
    assert_says(
        &known,
        &format!("{start}{last}, the store memory does not answer; every request is refused."),
    );
    known.policies[0].on_outage = "allow".to_owned();
    assert!(sentence(&known).ends_with("; every request passes uncounted."));
}

#[test]
fn alarms_notices_and_changes_are_told_and_then_not_everything_is_as_usual() {
    let mut known = document(vec![refusing("login", 0.7, 40)]);
    known.policies[0].crowd = true;
    let text = "new keys of login a minute: 512, usually 14 to 31; they make 94 % of its requests";
    known.notices = vec![notice("login", Some(text), true)];
    let start = "login refuses 0.7 a second since 14:40 UTC, of many keys, none of which stands out";
    let alarm = "; alarm since 14:41 UTC: new keys of login a minute: 512, usually 14 to 31";
    let end = "; the store answers within 5 µs.";
    assert_says(&known, &format!("{start}{alarm}{end}"));
    known.notices.extend([notice("login", Some("x"), true), notice("rules.yaml", Some("y"), false)]);
    assert_says(&known, &format!("{start}{alarm}; 1 more alarm lasts; 1 notice stands below{end}"));
    known.notices = vec![notice("login", None, true)];
    assert_says(&known, &format!("{start}; login has an alarm since 14:41 UTC{end}"));
    known.notices.clear();
    known.policies[0].over = Some(over());
    assert_says(&known, &format!("{start}; login is changed by ada until 15:40 UTC{end}"));
    known.policies.extend([policy("api"), policy("mail")]);
    known.policies[1].over = Some(over());
    assert_says(
        &known,
        &format!("{start}; login is changed by ada until 15:40 UTC; 1 more policy is changed{end}"),
    );
    known.policies[0].over = None;
    known.policies[1].over = None;
    let acme = || GivenShown {
        key: "\"acme\"".to_owned(),
        given: GivenQuotas {
            quotas: vec!["10/min".to_owned()],
            by: "ada".to_owned(),
            until: "2026-11-21T15:40:00.000Z".to_owned(),
            version: 2,
        },
    };
    known.policies[2].given = vec![acme()];
    assert_says(&known, &format!("{start}; 1 key has quotas from an operator{end}"));
    known.policies[1].given = vec![acme()];
    assert_says(&known, &format!("{start}; 2 keys have quotas from an operator{end}"));
}

#[test]
fn the_first_step_is_about_the_key_that_is_refused_most() {
    let mut known = document(vec![refusing("login", 0.7, 40), refusing("api", 3.0, 40)]);
    assert!(steps(&known).is_empty());
    for policy in &mut known.policies {
        policy.offenders = vec![offender("127.0.0.1", "address", 1.0)];
    }
    {
        let steps = steps(&known);
        let [NextAction::LookUp(policy, first)] = &steps[..] else { panic!("one step") };
        assert_eq!((&*policy.name, &*first.key), ("api", "127.0.0.1"));
    }
    known.policies.iter_mut().for_each(|policy| policy.per_second.rejected = 0.0);
    assert!(matches!(&*steps(&known), [NextAction::LookUp(..)]), "it was refused most in the last hour");
    // A reader has no word for it.
    known.policies.iter_mut().for_each(|policy| policy.offenders[0].is_known = false);
    assert!(steps(&known).is_empty());
}

#[test]
fn a_policy_with_an_alarm_is_tightened_first_unless_one_key_is_the_cause_and_is_loosened_again() {
    let mut known = document(vec![refusing("login", 0.7, 40)]);
    known.notices = vec![notice("login", Some("x"), true)];
    known.policies[0].tighter =
        Some(Tighter { quota: "2/min".to_owned(), lasts: "30min".to_owned(), of_new_keys: false });
    known.policies[0].offenders = vec![offender("127.0.0.1", "address", 0.1)];
    assert!(matches!(&steps(&known)[..], [NextAction::Tighten(..), NextAction::LookUp(..)]));
    known.policies[0].offenders[0].share = 0.9;
    assert!(matches!(&steps(&known)[..], [NextAction::LookUp(..), NextAction::Tighten(..)]));
    known.policies[0].over = Some(over());
    assert!(matches!(&steps(&known)[..], [NextAction::LookUp(..), NextAction::Withdraw(..)]));
    // An alarm of another policy, and a notice of the application.
    known.policies[0].over = None;
    known.notices = vec![notice("api", Some("x"), true), notice("login", Some("x"), false)];
    assert!(matches!(&steps(&known)[..], [NextAction::LookUp(..)]));
}
