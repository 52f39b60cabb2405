//! Requests that several places decide together: the whole request passes, or no units stay spent.
//!
//! A place decides its asks in one step: a store, a hash slot of a Cluster, or the fallback of a `Resilient` store. No step spans
//! two places, so a request for several is decided in these steps:
//!
//! 1. Asks that may be refused go to one place after the other ([`ask_in_turn`]), until one refuses or gives no answer.
//! 2. The caller then gives back the units spent in earlier places, by their receipts. They are never given back twice, whatever the answer.
//! 3. Asks that cannot be refused go to all places [at once](ask_at_once), after all others have passed.
//! 4. The answers are [joined](Decision::joined).
//!
//! Between two steps, units are spent without a request that passes. If the process dies there, or an answer is lost, they stay spent until
//! they drain or their window ends: then too few requests are admitted, never too many.

use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::DecisionFuture;

/// The asks that one place has decided, and its decision.
pub type DecidedPart<A> = (A, Decision);

/// The answers of places that were asked one after the other.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is a pair with names")]
pub struct AskedInTurn<A> {
    /// The parts that have passed, in the order in which they were asked. Give back their units if another part did not pass.
    pub passed: Vec<DecidedPart<A>>,
    /// The part that was refused, or the error of a place that gave no answer; `None` if all have passed.
    pub ended: Option<Result<DecidedPart<A>, StoreError>>,
}

/// Asks one place after the other, until one refuses or gives no answer. `ask` gets the asks of a place, and the parts that have passed
/// before. For stores that decide in several places.
///
/// # Cancel safety
/// If the future is dropped, units that places have spent stay spent: run it [to its end](DecisionFuture::begun).
pub async fn ask_in_turn<A>(
    parts: impl IntoIterator<Item = A>,
    mut ask: impl FnMut(&mut A, &[DecidedPart<A>]) -> DecisionFuture,
) -> AskedInTurn<A> {
    let mut asked = AskedInTurn { passed: Vec::new(), ended: None };
    for mut asks in parts {
        match ask(&mut asks, &asked.passed).await {
            Ok(decision) if decision.is_allowed() => asked.passed.push((asks, decision)),
            answer => {
                asked.ended = Some(answer.map(|decision| (asks, decision)));
                break;
            }
        }
    }
    asked
}

/// The answers of places that were asked at the same time. It waits for all of them, even after an error. Use it for peeks and reports,
/// which are never all or nothing. For stores that decide in several places.
///
/// # Errors
/// The error of a place that gave no answer. It says nothing about the others.
///
/// # Cancel safety
/// If it is dropped, each place continues or stops as its own future says; run it [to its end](DecisionFuture::begun) for reports.
pub async fn ask_at_once<A>(begun: Vec<(A, DecisionFuture)>) -> Result<Vec<DecidedPart<A>>, StoreError> {
    let (mut parts, mut failed) = (Vec::with_capacity(begun.len()), None);
    for (asks, answer) in begun {
        match answer.await {
            Ok(decision) => parts.push((asks, decision)),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(parts), Err)
}
