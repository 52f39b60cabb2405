//! How paths are compared, and which patterns match a path: patterns without captures in a table of whole paths, all others in a tree of segments.
//!
//! # Cost
//! A path is looked up once in the table, and walked once in the tree, whatever the number of patterns: a segment costs one table lookup.
//! If a text and a capture both match, both ways are walked, so that a path visits only nodes with patterns that match its text so far,
//! each at most once.

use std::borrow::Cow;
use std::collections::HashMap;

use sluicegate_tower::limits::PathReading;
use sluicegate_tower::limits::path::{
    Fold, PathPattern, PathSegment, Purpose, Sense, is_plain, spellings, split,
};
use smallvec::SmallVec;

/// The way in which the conditions of a section compare paths.
#[derive(Clone, Copy, Default)]
pub(super) struct Comparison {
    pub purpose: Purpose,
    /// The ignored differences where a path must match, and where it must not.
    folds: [Fold; 2],
}

impl Comparison {
    pub(super) fn new(purpose: Purpose, reading: PathReading) -> Self {
        Self { purpose, folds: [Sense::In, Sense::NotIn].map(|sense| reading.fold(purpose, sense)) }
    }

    pub(super) fn fold(self, sense: Sense) -> Fold {
        let [within, where_not] = self.folds;
        if sense == Sense::In { within } else { where_not }
    }

    /// Whether a path clearly means only itself, like most paths.
    #[inline]
    pub(super) fn is_only_reading(self, path: &str) -> bool {
        self.folds.iter().all(|fold| fold.is_exact()) && is_plain(path)
    }

    /// The only reading of a path, if it clearly has only one, like most paths.
    pub(super) fn only_reading(self, path: &str) -> Option<MeantPath<'_>> {
        is_plain(path).then(|| MeantPath::of(Cow::Borrowed(path), self))
    }

    /// The paths that a request with this path may mean.
    pub(super) fn readings(self, path: &str) -> Readings<'_> {
        spellings(path, self.purpose).into_iter().map(|path| MeantPath::of(path, self)).collect()
    }
}

/// The paths that a request may mean; most requests have one.
pub(super) type Readings<'a> = SmallVec<[MeantPath<'a>; 1]>;

/// A path that a request may mean: `path` is compared with patterns that must match, `where_not` with patterns that must not.
pub(super) struct MeantPath<'a> {
    path: Cow<'a, str>,
    /// `None` if it equals `path`.
    where_not: Option<Cow<'a, str>>,
}

impl<'a> MeantPath<'a> {
    fn of(path: Cow<'a, str>, comparison: Comparison) -> Self {
        let [fold, where_not] = comparison.folds;
        let where_not = (where_not != fold).then(|| where_not.apply(path.clone()));
        Self { path: fold.apply(path), where_not }
    }

    #[inline]
    pub(super) fn path(&self, sense: Sense) -> &str {
        match (&self.where_not, sense) {
            (Some(path), Sense::NotIn) => path,
            _ => &self.path,
        }
    }
}

/// A table filled by the file and looked up by requests. Clients do not choose its keys, so its hash may be a fast one.
pub(super) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Adds a number to a list in order, once.
pub(super) fn note(numbers: &mut Vec<usize>, number: usize) {
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}

/// Numbers of patterns, by their paths and by their segments.
#[derive(Default)]
pub(super) struct PathTree {
    /// Patterns without captures.
    whole: FastMap<String, Vec<usize>>,
    /// The [kinds](kind) of these paths: most others have another kind, and are not looked up.
    kinds: u64,
    /// The first is the root. No node points to one before it. A path that reaches a node matches the patterns with numbers there.
    nodes: Vec<Node>,
    /// The ignored differences between patterns and paths.
    fold: Fold,
}

#[derive(Default)]
struct Node {
    texts: FastMap<String, usize>,
    capture: Option<usize>,
    /// Numbers of the patterns that match the whole rest.
    rest: Vec<usize>,
    /// Numbers of the patterns that end here.
    here: Vec<usize>,
}

impl PathTree {
    /// A tree for patterns that are read with this fold.
    pub(super) fn new(fold: Fold) -> Self {
        Self { fold, ..Self::default() }
    }

    /// Adds a pattern under a number, which others may have, too, but no lower number than before.
    pub(super) fn add(&mut self, pattern: &PathPattern, number: usize) {
        if let Some(path) = pattern.literal() {
            self.kinds |= kind(path);
            return note(self.whole.entry(path.to_owned()).or_default(), number);
        }
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for segment in pattern.segments() {
            let new = self.nodes.len();
            let next = match segment {
                PathSegment::Rest => return note(&mut self.nodes[at].rest, number),
                PathSegment::Text(text) => *self.nodes[at].texts.entry(text.clone()).or_insert(new),
                PathSegment::Capture => *self.nodes[at].capture.get_or_insert(new),
            };
            if next == new {
                self.nodes.push(Node::default());
            }
            at = next;
        }
        note(&mut self.nodes[at].here, number);
    }

    /// Reports the numbers of all patterns that match a path to which the fold has been applied. No node is visited twice.
    pub(super) fn find<'a>(&'a self, path: &str, mut found: impl FnMut(&'a [usize])) {
        found(self.whole(path));
        if !self.nodes.is_empty() {
            self.find_in_tree(path, found);
        }
    }

    /// The numbers of all patterns that match a path to which the fold has been applied; `None` if they are not in one list.
    #[inline]
    pub(super) fn only(&self, path: &str) -> Option<&[usize]> {
        self.nodes.is_empty().then(|| self.whole(path))
    }

    /// The numbers of the patterns without captures that match a path.
    #[inline]
    fn whole(&self, path: &str) -> &[usize] {
        let known = if self.kinds & kind(path) != 0 { self.whole.get(path) } else { None };
        known.map_or(&[], Vec::as_slice)
    }

    fn find_in_tree<'a>(&'a self, path: &str, mut found: impl FnMut(&'a [usize])) {
        let Some(path) = path.strip_prefix('/') else { return };
        // If a text and a capture both match, the capture is visited later.
        let (mut later, mut next) = (Vec::new(), Some((0, Some(path))));
        while let Some((node, left)) = next.take().or_else(|| later.pop()) {
            let node = &self.nodes[node];
            let Some(text) = left else {
                found(&node.here);
                if self.fold.trailing_slash {
                    found(&node.rest);
                }
                continue;
            };
            found(&node.rest);
            if node.texts.is_empty() && node.capture.is_none() {
                continue;
            }
            let (first, after) = split(text);
            next = node.texts.get(first).map(|node| (*node, after));
            let capture = node.capture.filter(|_| !first.is_empty()).map(|node| (node, after));
            match next {
                None => next = capture,
                Some(_) => later.extend(capture),
            }
        }
    }
}

/// One of 64 bits, by the length of a path and its first letter.
#[inline]
fn kind(path: &str) -> u64 {
    let letter = path.as_bytes().get(1).copied().unwrap_or_default();
    1 << ((path.len() ^ (usize::from(letter) << 2)) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_among_others_matches_the_paths_that_it_matches_by_itself() {
        let all = [
            "/",
            "/*",
            "/{a}",
            "/{a}/",
            "/{a}/{b}",
            "/login",
            "/login/",
            "/users/{id}/x",
            "/users/{id}",
            "/users/*",
            "/Users/7",
        ];
        let paths = [
            "/",
            "/a",
            "/a/",
            "/login",
            "/login/",
            "/users",
            "/users/",
            "/users/7",
            "/users/7/x",
            "/Users/7/x/",
            "*",
        ];
        for (case, trailing_slash) in [(false, false), (true, false), (false, true), (true, true)] {
            let fold = Fold { case, trailing_slash };
            let patterns = all.map(|text| PathPattern::new(text, fold).expect("a good pattern"));
            let mut tree = PathTree::new(fold);
            patterns.iter().enumerate().for_each(|(number, pattern)| tree.add(pattern, number));
            for path in paths {
                let path = fold.apply(path);
                let mut found = Vec::new();
                tree.find(&path, |numbers| found.extend_from_slice(numbers));
                found.sort_unstable();
                let expected: Vec<_> = (0..all.len()).filter(|at| patterns[*at].matches(&path)).collect();
                assert_eq!(found, expected, "{path} {fold:?}");
            }
        }
    }
}
