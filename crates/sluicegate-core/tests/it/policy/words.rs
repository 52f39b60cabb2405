//! Options are written in words: each prints as the text that it reads from.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::algorithm::Drain;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{OnFull, PolicyMode, TimeSpan};
use sluicegate_core::{Algorithm, ConfigError, OnExceeded, OnOutage, Quota};

use crate::support::{ALL, ms, secs};

fn reads_back<T>(value: T) -> String
where
    T: FromStr<Err = ConfigError> + Display + Debug + PartialEq,
{
    let text = value.to_string();
    assert_eq!(text.parse(), Ok(value), "{text:?}");
    text
}

#[test]
fn each_option_has_its_words() {
    let outages = [OnOutage::Local, OnOutage::Allow, OnOutage::Deny].map(reads_back);
    assert_eq!(outages, ["local", "allow", "deny"]);
    assert_eq!(reads_back(OnOutage::Quota(Quota::per_second(1_000).burst(50))), "1000/s burst 50");
    let modes = [PolicyMode::Enforce, PolicyMode::Shadow, PolicyMode::Off].map(reads_back);
    assert_eq!(modes, ["enforce", "shadow", "off"]);
    assert_eq!(
        [OnFull::Forget, OnFull::Inherit, OnFull::Keep].map(reads_back),
        ["forget", "inherit", "keep"]
    );
    let ways = [Inherit::Spent, Inherit::Reset, Inherit::AsIs, Inherit::Proportional, Inherit::Additive];
    assert_eq!(ways.map(reads_back), ["spent", "reset", "as-is", "proportional", "additive"]);
    let waits =
        [OnExceeded::Deny, OnExceeded::Wait { longest: secs(5) }, OnExceeded::Wait { longest: ms(500) }];
    assert_eq!(waits.map(reads_back), ["deny", "wait 5s", "wait 500ms"]);
    let names = ALL.map(reads_back);
    assert_eq!(names[10], "leaky-bucket-queue-above-2");
}

#[test]
fn another_word_is_refused_with_those_that_there_are() {
    fn refused<T: FromStr<Err = ConfigError> + Debug>(text: &str) -> ConfigError {
        let error = text.parse::<T>().expect_err("it is none of the words");
        assert_eq!(error.kind(), ConfigErrorKind::Unreadable, "{error}");
        error
    }
    assert_eq!(
        refused::<OnOutage>("open").to_string(),
        "\"open\" does not say what happens while the store cannot be reached: use \"local\", \"allow\", \"deny\", or a quota for this process, such as \"1000/s\""
    );
    let error = refused::<OnOutage>("5/fortnight");
    assert!(error.to_string().contains("\"5/fortnight\" is not a quota"), "{error}");
    assert_eq!(error.span(), Some(2..11));
    assert!(refused::<OnFull>("").to_string().contains("use \"forget\", \"inherit\" or \"keep\""));
    assert!(refused::<PolicyMode>("on").to_string().contains("use \"enforce\", \"shadow\" or \"off\""));
    assert!(refused::<Inherit>("As-Is").to_string().contains("\"as-is\""));
    assert!(
        refused::<Algorithm>("leaky")
            .to_string()
            .contains("\"gcra\", sliding-log-in-N, or leaky-bucket-queue-above-N")
    );
    assert!(refused::<OnExceeded>("queue").to_string().contains("\"deny\", or \"wait\" with a time"));
    let wait = "wait 5 fortnights";
    let error = refused::<OnExceeded>(wait);
    assert!(error.to_string().contains("\"fortnights\" is not a unit of time"), "{error}");
    assert_eq!(error.span().map(|span| &wait[span]), Some("fortnights"));
    for text in ["wait", "wait s", "wait -5s", "wait 5"] {
        assert!(refused::<OnExceeded>(text).to_string().contains("how long a request waits"), "{text:?}");
    }
    for text in ["", "s", "five seconds", "5", "5 fortnights", "-5s", "1,5s", "1.s", "0.5ns"] {
        refused::<TimeSpan>(text);
    }
    // A text may be long, and is not repeated whole.
    assert!(refused::<OnOutage>(&"x".repeat(10_000)).to_string().len() < 300);
}

#[test]
fn a_span_of_time_is_read_in_every_unit() {
    for (text, span) in [
        ("7ns", Duration::from_nanos(7)),
        ("7 us", Duration::from_micros(7)),
        ("1_500 ms", ms(1_500)),
        ("90s", secs(90)),
        ("2 minutes", secs(120)),
        ("1 hour", secs(3_600)),
        ("3d", secs(3 * 86_400)),
        ("2 weeks", secs(14 * 86_400)),
        ("0.5s", ms(500)),
        ("1.25 h", secs(4_500)),
    ] {
        assert_eq!(text.parse(), Ok(TimeSpan::from(span)), "{text}");
    }
    assert_eq!(TimeSpan::from(secs(60)).to_string(), "1min");
}

proptest! {
    #[test]
    fn every_quota_reads_back(limit in 1_u64.., burst in prop::option::of(1_u64..), nanos in 1_u64..) {
        let quota = Quota::new(limit, Duration::from_nanos(nanos));
        reads_back(burst.map_or(quota, |burst| quota.burst(burst)));
    }

    #[test]
    fn every_wait_reads_back(secs in 1_u64.., nanos in 0_u32..1_000_000_000) {
        let longest = Duration::new(secs.min(u64::MAX / 1_000_000_000 - 1), nanos);
        reads_back(OnExceeded::Wait { longest });
        reads_back(TimeSpan::from(longest));
    }

    #[test]
    fn every_queue_reads_back(units: u64) {
        reads_back(Algorithm::LeakyBucket(Drain::QueueAbove(units)));
    }

    #[test]
    fn no_text_makes_a_parser_fall(text in ".{0,40}") {
        let spans = [
            text.parse::<Quota>().err().and_then(|error| error.span()),
            text.parse::<TimeSpan>().err().and_then(|error| error.span()),
            text.parse::<OnExceeded>().err().and_then(|error| error.span()),
            text.parse::<OnOutage>().err().and_then(|error| error.span()),
        ];
        for span in spans.into_iter().flatten() {
            prop_assert!(text.get(span.clone()).is_some(), "{span:?} is no part of {text:?}");
        }
    }
}
