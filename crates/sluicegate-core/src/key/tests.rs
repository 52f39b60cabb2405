use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;

#[test]
fn different_parts_are_different_keys() {
    let long = "x".repeat(200);
    let keys = [
        Key::from(("a_b", "c")),
        Key::from(("a", "b_c")),
        Key::from(("", "x")),
        Key::from(("x", "")),
        Key::from("x"),
        Key::from(""),
        Key::shared(),
        Key::from(1_u64),
        Key::from("1"),
        Key::from(Ipv4Addr::new(1, 0, 0, 0)),
        Key::from(Ipv6Addr::LOCALHOST),
        Key::from(&*long),
        Key::from(("u7", "r", 9_u64)),
        Key::from(-1),
        Key::from(i128::MIN),
        Key::from(u64::MAX),
        Key::from(u128::MAX),
        Key::from(u128::from(u64::MAX) + 1),
        Key::from([1_u8, 0, 0, 0, 0, 0, 0, 0]),
        Key::from([1_u8; 16]),
        Key::of_digest([1; 16]),
        Key::from(u128::from_le_bytes([1; 16])),
    ];
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[..i] {
            assert_ne!(a.as_bytes(), b.as_bytes());
            assert_ne!(a.as_ref().parts(), b.as_ref().parts());
        }
    }
}

#[test]
fn a_borrowed_key_is_the_same_key_as_a_kept_one() {
    fn same(borrowed: impl AsKey, kept: impl Into<Key>) {
        let kept = kept.into();
        borrowed
            .with_key(|key| assert_eq!((key.parts(), key.to_key()), (kept.as_ref().parts(), kept.clone())));
    }
    for length in [0, 1, 15, 51, 127, 128, 300, 20_000] {
        let text = "x".repeat(length);
        same(&*text, &*text);
    }
    same(7, 7);
    same(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    same(("user", 7), ("user", 7));
    same(("", "x", 9), ("", "x", 9));
    same(Key::shared(), Key::shared());
    same(-7_i64, -7_i8);
    same(u128::MAX, u128::MAX);
    same(Key::of_digest([7; 16]), Key::of_digest([7; 16]));
    same([0_u8; 16], vec![0_u8; 16]);
    same(Cow::Borrowed("user"), "user");
    same(("tenant", 7_u32, [1_u8; 4], -7), Key::from("tenant").and(7_i128).and(vec![1_u8; 4]).and(-7_isize));
}

#[test]
fn a_number_is_the_same_key_whatever_its_type() {
    let sevens = [Key::from(7_u8), 7_u16.into(), 7_u32.into(), 7_u64.into(), 7_u128.into(), 7_usize.into()];
    let signed = [Key::from(7_i8), 7_i16.into(), 7_i32.into(), 7_i64.into(), 7_i128.into(), 7_isize.into()];
    assert!(sevens.iter().chain(&signed).all(|key| *key == Key::from(7)));
    let negative = [Key::from(-7_i8), (-7_i16).into(), (-7_i64).into(), (-7_i128).into()];
    assert!(negative.iter().all(|key| *key == Key::from(-7) && *key != Key::from(7)));
}

#[test]
fn a_mapped_address_is_the_address_that_it_maps() {
    let mapped: IpAddr = "::ffff:198.51.100.7".parse().unwrap();
    assert_eq!(Key::from(mapped), Key::from(Ipv4Addr::new(198, 51, 100, 7)));
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!("{:?}", Key::from("sk_live_51H"));
    assert!(shown.starts_with("Key(") && !shown.contains("sk_live"), "{shown}");
}

#[test]
fn a_kind_changes_nothing_about_whose_bucket_it_is() {
    let (secret, name) = (Key::from("ada"), Key::from("ada").of_kind(KeyKind::Name));
    assert_eq!((&secret, secret.as_bytes()), (&name, name.as_bytes()));
    assert_eq!(secret.as_ref().parts(), name.as_ref().parts());
    assert_eq!(secret.cmp(&name), std::cmp::Ordering::Equal);
    assert_eq!(format!("{secret:?}"), format!("{name:?}"));
}

#[test]
fn a_kind_stays_with_a_key_that_is_borrowed_and_kept() {
    let long = "x".repeat(300);
    for kind in [KeyKind::Name, KeyKind::Address, KeyKind::Secret] {
        for key in [Key::from(7), Key::from(&*long), Key::from(("a", 1)), Key::shared()] {
            let key = key.of_kind(kind);
            assert_eq!((key.kind(), key.as_ref().kind(), key.as_ref().to_key().kind()), (kind, kind, kind));
        }
    }
}

#[test]
fn the_most_secret_part_says_what_the_whole_is() {
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    let route = Key::from("/login").of_kind(KeyKind::Name);
    let kind = |key: &dyn Fn() -> Key| key().kind();
    assert_eq!(kind(&|| (&route, address).with_key(|key| key.to_key())), KeyKind::Address);
    assert_eq!(kind(&|| route.clone().and(Key::shared())), KeyKind::Name);
    assert_eq!(kind(&|| (address, "sk_live").into()), KeyKind::Secret);
    assert_eq!(kind(&|| 7.into()), KeyKind::Secret);
}

#[test]
fn only_names_and_addresses_are_shown() {
    assert_eq!(Key::from(IpAddr::from([192, 0, 2, 7])).shown(), "192.0.2.7");
    assert!(!Key::from("sk_live_51H").shown().contains("sk_live"));
    // A digest cannot be read, whatever it is of; and the parts beside it say too little.
    for digest in [Key::of_digest([b'x'; 16]), Key::from("/login").and(Key::of_digest([b'x'; 16])).and(7)] {
        let digest = digest.of_kind(KeyKind::Name);
        assert_eq!(digest.shown(), format!("{digest:?}"));
    }
}

#[test]
fn a_borrowed_key_is_equal_to_and_hashes_as_the_one_that_is_kept() {
    use std::hash::{BuildHasher, RandomState};

    let hasher = RandomState::new();
    let long = "a name that is longer than what fits into a key without an allocation".repeat(3);
    for key in
        [Key::from("ada"), Key::from(7), Key::from(("ada", 7)), Key::from(long.as_str()), Key::shared()]
    {
        let kept = Key::encoded(KeyKind::Secret, key.as_bytes());
        assert!(kept.as_ref() == key.as_ref(), "their kinds do not count");
        assert_eq!(hasher.hash_one(kept.as_ref()), hasher.hash_one(key.as_ref()));
        assert!(key.as_ref() != Key::from("grace").as_ref());
    }
    long.as_str().with_key(|key| assert!(key == Key::from(long.as_str()).as_ref()));
    "ada".with_key(|key| assert!(key == Key::from("ada").as_ref()));
}
