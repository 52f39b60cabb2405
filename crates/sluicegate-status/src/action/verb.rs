//! Does the action that a verb names: [`act`].

use http::StatusCode;

use super::fault::ActionFault;
use super::give::give;
use super::input::Input;
use super::key::{KeyAction, act_on_key};
use super::policy::{Changed, all_to_shadow, change, withdraw};
use super::room::change_room;
use super::target::LookupTarget;
use crate::document::{LookedUp, RoomChanged, by_key, by_request};
use crate::scope::Scope;
use crate::secret::Secret;

/// The result of an action.
pub(crate) enum Done {
    LookedUp(LookedUp),
    /// The sentence about an action on a key, and the key's status after it.
    Acted(String, LookedUp),
    Changed(Changed),
    RoomChanged(Box<RoomChanged>),
}

/// Does what this operator asks for.
///
/// # Errors
/// [`ActionFault`] when the verb is unknown, or when the action lacks something.
pub(crate) async fn act(
    scope: &Scope,
    secret: &Secret,
    operator: &str,
    input: &Input,
) -> Result<Done, ActionFault> {
    let verb = input.verb.as_deref().and_then(OperatorAction::read);
    match verb.ok_or_else(|| ActionFault::new(StatusCode::NOT_FOUND, "there is no such action"))? {
        OperatorAction::LookUp => look_up(scope, secret, input).await.map(Done::LookedUp),
        OperatorAction::Key(action) => {
            let found = act_on_key(scope, secret, (action, operator), input).await?;
            Ok(Done::Acted(action.to_string(), found))
        }
        OperatorAction::Give => {
            let (done, found) = give(scope, secret, operator, input).await?;
            Ok(Done::Acted(done, found))
        }
        OperatorAction::Change => change(scope, operator, input).await.map(Done::Changed),
        OperatorAction::Withdraw => withdraw(scope, operator, input).await.map(Done::Changed),
        OperatorAction::AllToShadow => all_to_shadow(scope, operator, input).await.map(Done::Changed),
        OperatorAction::ChangeRoom => {
            let changed = change_room(scope, operator, input).await?;
            Ok(Done::RoomChanged(Box::new(changed)))
        }
    }
}

/// Asks the store for the status of a key; spends nothing.
pub(crate) async fn look_up(scope: &Scope, secret: &Secret, input: &Input) -> Result<LookedUp, ActionFault> {
    match LookupTarget::of(scope, secret, input).await? {
        LookupTarget::Key(limiter, key, doubt) => Ok(by_key(secret, &limiter, &key).await?.doubted(doubt)),
        LookupTarget::Request(explained) => Ok(by_request(scope, secret, *explained).await),
    }
}

/// The action that an operator asks for.
#[derive(Clone, Copy)]
enum OperatorAction {
    LookUp,
    Key(KeyAction),
    /// Gives quotas to a key.
    Give,
    Change,
    Withdraw,
    AllToShadow,
    ChangeRoom,
}

impl OperatorAction {
    /// Reads the word as forms and paths write it.
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "look-up" => Self::LookUp,
            "reset" => Self::Key(KeyAction::Reset),
            "suspend" => Self::Key(KeyAction::Suspend),
            "release" => Self::Key(KeyAction::Release),
            "give" => Self::Give,
            "change" => Self::Change,
            "withdraw" => Self::Withdraw,
            "all-to-shadow" => Self::AllToShadow,
            "change-room" => Self::ChangeRoom,
            _ => return None,
        })
    }
}
