//! The default name of a limit: the path of its handler.

/// The longest name of a policy.
const LONGEST: usize = 64;

/// `shop::users::create` becomes `shop.users.create`. In a path that is too long, a hash of the whole path replaces the front;
/// a path with characters that names cannot have gets that hash too. So different paths have different names, which do not
/// depend on the machine or the version.
pub(super) fn of_path(path: &str) -> String {
    let segments = path.split("::").map(|segment| segment.strip_prefix("r#").unwrap_or(segment));
    let plain = segments.collect::<Vec<_>>().join(".");
    let fits = plain.len() <= LONGEST
        && plain.starts_with(|first: char| first.is_ascii_alphanumeric())
        && plain.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_'));
    if fits {
        return plain;
    }
    let letters: String =
        plain
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c.to_ascii_lowercase() } else { '-' }
            })
            .collect();
    let hash = format!("{:08x}.", fnv1a(path));
    let room = LONGEST - hash.len();
    let tail = match letters.len().checked_sub(room) {
        None | Some(0) => &*letters,
        // The characters are ASCII. The rest begins with a whole segment, because half a segment would be confusing.
        Some(cut) => {
            let tail = &letters[cut..];
            tail.split_once('.').map_or(tail, |(_, whole)| whole)
        }
    };
    hash + tail
}

/// FNV-1a, because `Hasher`s of the standard library may differ from version to version.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sluicegate_core::Policy;

    use super::*;

    #[test]
    fn a_path_in_plain_letters_is_the_name() {
        assert_eq!(of_path("shop::users::create"), "shop.users.create");
        assert_eq!(of_path("shop::r#match::r#move"), "shop.match.move");
        assert_eq!(of_path("shop::_taken_2"), "shop._taken_2");
        let longest = format!("shop::{}", "x".repeat(59));
        assert_eq!(of_path(&longest), longest.replace("::", "."));
    }

    #[test]
    fn a_long_path_loses_its_front_and_keeps_whole_segments() {
        let path = "shop::handlers::of_version_two::administration::customers::addresses::create";
        assert_eq!(of_path(path), "61b211de.administration.customers.addresses.create");
        let one_segment = "y".repeat(80);
        assert_eq!(of_path(&one_segment).len(), LONGEST);
    }

    #[test]
    fn every_path_has_a_valid_name_of_its_own() {
        let long = |front: &str| format!("{front}::{}::create", "module_with_a_long_name::".repeat(4));
        let paths = [
            "shop::log_in",
            "shop::logIn",
            "shop::login",
            "Shop::login",
            "shop::größe",
            "shop::grüße",
            "_shop::login",
            "shop::a_b",
            "shop::a::b",
            "größe::login",
            &long("shop"),
            &long("stock"),
            &long("Shop"),
        ];
        let names: HashSet<String> = paths.iter().map(|path| of_path(path)).collect();
        assert_eq!(names.len(), paths.len(), "{names:?}");
        for name in names {
            assert!(Policy::gcra(&*name, "5/min").build().is_ok(), "{name}");
        }
    }
}
