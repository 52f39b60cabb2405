//! Fields of a service that name a quota as we do, and fields that cannot be read.

use http::Response;
use sluicegate_core::Policy;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::respond::header_modes::{builder, setting};
use crate::support::{Body, all_fields, by_header, described, fields, from, layer, on, send, store};

/// The response of a service that sets these fields, behind 2 a minute called `api`.
async fn behind_api(
    headers: HeaderFields,
    theirs: &'static [(&'static str, &'static str)],
) -> Response<Body> {
    send(&builder().headers(headers).build().unwrap().layer(setting(theirs)), from("ada")).await
}

const OURS: [&str; 5] = [
    r#"ratelimit-policy: "api";q=2;w=60"#,
    r#"ratelimit: "api";r=1;t=30"#,
    "x-ratelimit-limit: 2",
    "x-ratelimit-remaining: 1",
    "x-ratelimit-reset: 30",
];

#[tokio::test]
async fn a_quota_of_our_name_that_leaves_more_is_ours_in_every_field() {
    // It stayed in the lists, while X-RateLimit-Remaining said 1.
    let theirs = &[("ratelimit-policy", r#""api";q=9;w=10"#), ("ratelimit", r#""api";r=7;t=3"#)];
    assert_eq!(fields(&behind_api(HeaderFields::All, theirs).await), OURS);
}

#[tokio::test]
async fn a_quota_of_our_name_that_leaves_less_is_theirs_in_every_field() {
    let theirs = &[("ratelimit-policy", r#""api";q=9;w=10"#), ("ratelimit", r#""api";r=0;t=3"#)];
    assert_eq!(
        fields(&behind_api(HeaderFields::All, theirs).await),
        [
            r#"ratelimit-policy: "api";q=9;w=10"#,
            r#"ratelimit: "api";r=0;t=3"#,
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 3",
        ]
    );
    let told = ["x-ratelimit-limit: 9", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 3"];
    assert_eq!(fields(&behind_api(HeaderFields::Legacy, theirs).await)[2..], told);
    // Of equal numbers the longer wait is the tighter one; the policy that theirs leaves out is ours.
    let told = fields(&behind_api(HeaderFields::All, &[("ratelimit", r#""api";r=1;t=31"#)]).await);
    let [policy, .., limit, remaining, _] = OURS;
    assert_eq!(told, [policy, r#"ratelimit: "api";r=1;t=31"#, limit, remaining, "x-ratelimit-reset: 31"]);
}

#[tokio::test]
async fn layers_around_such_a_service_keep_to_the_tighter_of_the_two() {
    let theirs =
        &[("ratelimit-policy", r#""inner";q=9;w=10"#), ("ratelimit", r#""inner";r=0;t=3, "up";r=5"#)];
    let (store, _) = store();
    let service =
        layer(&store, "outer", "10/min").layer(layer(&store, "inner", "5/min").layer(setting(theirs)));
    assert_eq!(
        fields(&send(&service, from("ada")).await),
        [
            r#"ratelimit-policy: "inner";q=9;w=10, "outer";q=10;w=60"#,
            r#"ratelimit: "inner";r=0;t=3, "up";r=5, "outer";r=9;t=6"#,
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 3",
        ]
    );
}

#[tokio::test]
async fn a_name_inside_of_another_is_another() {
    // The text of one was looked for in the line of the other.
    let theirs = &[("ratelimit-policy", r#""my\"api\"";q=9;w=10"#), ("ratelimit", r#""x";r=3;by="api""#)];
    let response = behind_api(HeaderFields::Ietf, theirs).await;
    for name in ["ratelimit-policy", "ratelimit"] {
        let names: Vec<_> = described_names(&response, name);
        assert_eq!((names.len(), names[1].as_str()), (2, "api"), "{names:?}");
    }
}

/// The names in a list whose other parameters may be anything.
fn described_names(response: &Response<Body>, name: &str) -> Vec<String> {
    let line = response.headers()[name].to_str().unwrap();
    let list: sfv::List = sfv::Parser::new(line).parse().unwrap();
    let names = list.into_iter().map(|entry| match entry {
        sfv::ListEntry::Item(sfv::Item { bare_item: sfv::BareItem::String(name), .. }) => name.to_string(),
        other => panic!("{other:?} is not a string"),
    });
    names.collect()
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_not_joined_with_ours() {
    // Clients ignore the whole field then, and so they ignored ours.
    for theirs in [
        &[("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=60")][..],
        &[("ratelimit", r#""up;r=3"#), ("ratelimit-policy", r#""up";q=3,"#)],
        &[("ratelimit", r#""up";r=3"#), ("ratelimit", "garbage, here"), ("ratelimit-policy", r#""up";Q=3"#)],
        &[("ratelimit", "\u{e9}"), ("ratelimit-policy", r#"("up");q=3"#)],
        &[("ratelimit", ""), ("ratelimit-policy", " ")],
    ] {
        assert_eq!(fields(&behind_api(HeaderFields::All, theirs).await), OURS, "{theirs:?}");
    }
    // One that can be read stays, beside one that cannot.
    let theirs = &[("ratelimit", "garbage, here"), ("ratelimit-policy", r#""up";q=3"#)];
    let response = behind_api(HeaderFields::Ietf, theirs).await;
    assert_eq!(fields(&response), [r#"ratelimit-policy: "up";q=3, "api";q=2;w=60"#, OURS[1]]);
}

/// It once vanished beside a quota of ours that left more.
#[tokio::test]
async fn a_dictionary_of_an_earlier_draft_that_leaves_less_is_kept_and_shown_in_every_field() {
    let theirs = &[("ratelimit", "limit=100, remaining=0, reset=5"), ("ratelimit-policy", "100;w=60")];
    let kept = [
        "ratelimit-policy: 100;w=60",
        "ratelimit: limit=100, remaining=0, reset=5",
        "x-ratelimit-limit: 100",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 5",
    ];
    for headers in [HeaderFields::All, HeaderFields::Legacy] {
        assert_eq!(fields(&behind_api(headers, theirs).await), kept, "{headers}");
    }
    for headers in [HeaderFields::Ietf, HeaderFields::Draft7] {
        assert_eq!(fields(&behind_api(headers, theirs).await), kept[..2], "{headers}");
    }
}

#[tokio::test]
async fn no_layer_of_a_stack_joins_what_cannot_be_read() {
    let (store, _) = store();
    let inner =
        layer(&store, "inner", "5/min").layer(setting(&[("ratelimit", "r=1"), ("ratelimit-policy", "!")]));
    let response = send(&layer(&store, "outer", "10/min").layer(inner), from("ada")).await;
    let names = |name| described(&response, name).unwrap().into_iter().map(|(name, _)| name);
    assert_eq!(names("ratelimit").collect::<Vec<_>>(), ["outer", "inner"]);
    assert_eq!(names("ratelimit-policy").collect::<Vec<_>>(), ["outer", "inner"]);
}

#[tokio::test]
async fn a_hidden_policy_takes_no_name_from_the_service() {
    let (store, _) = store();
    let hidden = by_header(on(&store, Policy::gcra("api", "2/min").hidden()));
    let theirs = &[("ratelimit-policy", r#""api";q=9;w=10"#), ("ratelimit", r#""api";r=7;t=3"#)];
    let service = all_fields(hidden).build().unwrap().layer(setting(theirs));
    let untouched = [r#"ratelimit-policy: "api";q=9;w=10"#, r#"ratelimit: "api";r=7;t=3"#];
    assert_eq!(fields(&send(&service, from("ada")).await), untouched);
}
