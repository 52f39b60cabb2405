//! The file, section by section.

use schemars::JsonSchema;
use serde::Deserialize;

use super::sections::{ApiKeysEntry, AtOnceEntry, Clients, Jwt, PathsEntry, RoomEntry, StoreEntry};
use super::shapes::{
    Cost, DescriptorEntries, FieldValues, Named, OneOrMany, PricesEntry, TextWanted, said, written,
};
use super::words;
use crate::at::{At, Position};

/// Rate limits of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rules_file")]
pub(crate) struct File {
    /// The version of these words: 1.
    #[schemars(schema_with = "words::version")]
    pub version: At<String>,
    /// The store that keeps the counts. Without this section the program gives one.
    #[serde(default, deserialize_with = "said")]
    pub store: Option<At<StoreEntry>>,
    /// The way to find the address of a client. Default: it is the peer of the connection.
    #[serde(default, deserialize_with = "said")]
    pub clients: Option<At<Clients>>,
    /// The way in which the service behind reads paths.
    #[serde(default, deserialize_with = "said")]
    pub paths: Option<At<PathsEntry>>,
    /// The verification of JSON Web Tokens.
    #[serde(default, deserialize_with = "said")]
    pub jwt: Option<At<Jwt>>,
    /// The API keys that are known, and the tier or the quotas of each.
    #[serde(default, deserialize_with = "said")]
    pub api_keys: Option<At<ApiKeysEntry>>,
    /// Budgets by name; each is inert until a rule names it.
    #[serde(default)]
    pub policies: Named<At<PolicyEntry>>,
    /// Sizes of one limit, such as the plans of a service.
    #[serde(default)]
    pub tiers: Named<At<TiersEntry>>,
    /// Names for keys: the first of the list that a request has, or `program`, whose code finds the key.
    #[serde(default)]
    pub keys: Named<At<OneOrMany>>,
    /// The header fields of responses: `legacy` (`X-RateLimit-*`), `ietf` (`RateLimit`), `all` (both), `all-on-refusal` (`legacy`,
    /// and both on refusals), `draft-6` or `draft-7` (those of earlier drafts), `spring` (those of Spring Cloud Gateway), `openai` (those of OpenAI's API, for each policy) or `none`. The
    /// numbers under `in_flight` are told in the `RateLimit` of today alone. Default: `all-on-refusal`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::headers")]
    pub headers: Option<At<String>>,
    /// A request whose body a rule asks for, and that cannot be read, because it is compressed, neither JSON nor a form, too long or too slow: `match`
    /// (it may have any value, so all limits apply), `skip` (it has no fields), or the status of a refusal, such as `415`. Default: `match`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_unreadable_body")]
    pub on_unreadable_body: Option<At<String>>,
    /// Limits on requests that are under way at once, by name, as `exports: 10`; each is inert until a rule names it.
    #[serde(default)]
    pub in_flight: Named<At<AtOnceEntry>>,
    /// Requests that are refused before all else.
    #[serde(default)]
    pub deny: Vec<At<DenialEntry>>,
    /// Requests that no rule limits.
    #[serde(default)]
    pub exempt: Vec<At<Exemption>>,
    /// Every rule that matches applies; within a group, only the first that matches. An empty list says that all policies are checked by
    /// name.
    #[serde(default, deserialize_with = "said")]
    pub rules: Option<Vec<At<RuleEntry>>>,
}

impl File {
    /// The rules, if there are any.
    pub(crate) fn rules(&self) -> &[At<RuleEntry>] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// Whether it has policies and no rules on purpose, because all policies are checked by name.
    pub(crate) fn is_by_name(&self) -> bool {
        self.rules.as_ref().is_some_and(Vec::is_empty) && !self.policies.0.is_empty()
    }
}

/// A named budget.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "policy")]
pub(crate) struct PolicyEntry {
    /// The way it is counted, unless a quota names another algorithm. Default: `gcra`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::algorithm")]
    pub algorithm: Option<At<String>>,
    /// The quota, such as `5/min`, `10/s burst 20`, `1000/12h`, `60/min burst 100 start 10`, `10000/d by fixed-window`, or a list of quotas
    /// that all hold.
    pub quota: At<OneOrMany>,
    /// The place where a request gives the quotas of its key, which replace these: `jwt(claim)`, `api_key` (the `quota` of its line) or
    /// `header(name)`, which the proxies under `clients` set; the first of a list that is there counts. Its text is `500/min`, several
    /// quotas with commas between them, or `unlimited`.
    #[serde(default, deserialize_with = "said")]
    pub quota_by: Option<At<OneOrMany>>,
    /// Quotas of single keys, which replace these: `acme: 10000/min`, as many as there are here, or `unlimited`. A key is named by its
    /// claim, header field or address, an API key by its sha256.
    #[serde(default)]
    pub overrides: Named<At<OneOrMany>>,
    /// `enforce`, `shadow` (it is counted and refuses nobody) or `off`. Default: `enforce`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::mode")]
    pub mode: Option<At<String>>,
    /// Whether clients see no fields of it. Default: false.
    #[serde(default, deserialize_with = "said")]
    pub hidden: Option<At<bool>>,
    /// Whether refused requests spend of it too, up to its capacity, so that a client has to pause. Default: false.
    #[serde(default, deserialize_with = "said")]
    pub count_rejected: Option<At<bool>>,
    /// `deny`, or the longest wait as `wait 5s`; `defer`: its requests are kept and carried out later, by a queue of the program; or `room`: its
    /// requests go through a waiting room at this rate, instead of spending. Default: `deny`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_exceeded_of_policy")]
    pub on_exceeded: Option<At<String>>,
    /// The status of refusals by this policy, from 400 to 599, unless the rule has one. Default: 429.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub status: Option<At<String>>,
    /// The settings of the waiting room, with `on_exceeded: room`.
    #[serde(default, deserialize_with = "said")]
    pub room: Option<At<RoomEntry>>,
    /// `local`, `allow` or `deny`: what happens while the store cannot be reached. Default: `local`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_outage")]
    pub on_outage: Option<At<String>>,
    /// The number of keys for which a store in memory has room.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub table_size: Option<At<String>>,
    /// How the keys start where a reload changes the quotas: `spent` (spent units stay spent), `reset` (with the whole quota), `as-is` (with
    /// the units that were left), `proportional` (with the same part) or `additive` (with the units that were left and the growth).
    /// Default: `spent`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::inherit")]
    pub inherit: Option<At<String>>,
    /// Refuses a key outright that goes on after many refusals.
    #[serde(default, deserialize_with = "said")]
    pub suspend: Option<At<Suspend>>,
    /// Another quota in the place of the first one, while the requests of the policy are unusual.
    #[serde(default, deserialize_with = "said")]
    pub tighten: Option<At<Tighten>>,
}

impl PolicyEntry {
    /// Lists the words that are about spending, which a waiting room has none of.
    pub(crate) fn words_of_spending(
        &self,
    ) -> impl IntoIterator<Item = (&'static str, Option<Position>)> + use<> {
        written!(
            self; algorithm mode hidden count_rejected on_outage quota_by overrides table_size inherit suspend tighten status
        )
    }
}

/// Another quota while the requests of a policy are unusual.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "tighten")]
pub(crate) struct Tighten {
    /// The quota, below the first one of the policy, as `3/min burst 10`.
    pub to: At<String>,
    /// The longest time for which it stands, as `30min`.
    pub r#for: At<String>,
    /// The number of instances that have to see the alarm, where they share a store. Default: 2.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub agreed_by: Option<At<String>>,
    /// `new` where keys that came before the requests became unusual keep what they have. Default: `all`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::all_or_new")]
    pub keys: Option<At<String>>,
    /// `true` where the log says what would be done, and nothing is. Default: false.
    #[serde(default, deserialize_with = "said")]
    pub shadow: Option<At<bool>>,
}

/// Refuses a key outright that goes on after many refusals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "suspend")]
pub(crate) struct Suspend {
    /// The number of refusals, and the time in which they come, as `100 in 10min`.
    pub after: At<String>,
    /// The length of the first suspension, as `30min`; each further one is twice as long.
    pub r#for: At<String>,
    /// The longest that a suspension lasts, as `1d`.
    #[serde(default, deserialize_with = "said")]
    pub up_to: Option<At<String>>,
    /// The time for which a suspension counts towards the next one, as `1d`.
    #[serde(default, deserialize_with = "said")]
    pub remember: Option<At<String>>,
}

/// Sizes of one limit, such as the plans of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "tiers")]
pub(crate) struct TiersEntry {
    /// The policy whose keys have the quotas of their tier, so that a key keeps what it has spent when its tier changes.
    #[serde(default, deserialize_with = "said")]
    pub policy: Option<At<String>>,
    /// The place where the tier of a request is read: `jwt(claim)`, `api_key` or `header(name)`; the first of a list that is there counts.
    pub by: At<OneOrMany>,
    /// The quotas of each tier, as many as the policy has; or the name of a policy of its own, or `unlimited`.
    pub tiers: Named<At<OneOrMany>>,
    /// The tier of requests that have none, or one that is not listed.
    pub default_tier: At<String>,
}

/// Requests that are refused before all else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "denial")]
pub(crate) struct DenialEntry {
    /// The name of the denial in logs and in `explain`.
    pub name: At<String>,
    /// The requests that are refused.
    pub only_if: At<Condition>,
    /// The status of the refusal, from 400 to 599. Default: 403.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub status: Option<At<String>>,
}

/// Requests that no rule limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "exemption")]
pub(crate) struct Exemption {
    /// The name of the exemption in logs and in `explain`.
    pub name: At<String>,
    /// The requests that are exempt.
    pub only_if: At<Condition>,
}

/// Limits, and the requests that they apply to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rule")]
pub(crate) struct RuleEntry {
    /// The name of the rule in logs and in `explain`.
    pub name: At<String>,
    /// A group of rules, of which only the first that matches applies.
    #[serde(default, deserialize_with = "said")]
    pub group: Option<At<String>>,
    /// The requests that the rule is about. Default: all.
    #[serde(default, deserialize_with = "said")]
    pub only_if: Option<At<Condition>>,
    /// The policies, or tiers, that such a request spends from: all of them, or none. A rule without it has an `in_flight`.
    #[serde(default, deserialize_with = "said")]
    pub limit: Option<At<OneOrMany>>,
    /// The part of each tier's quota that this rule has, as `1/10`; shows as policy `tier.rule`.
    #[serde(default, deserialize_with = "said")]
    pub share: Option<At<String>>,
    /// The key of a request: `client`, `peer`, `everybody`, `api_key`, `api_key(header)`, `jwt(claim)`, `header(name)`,
    /// `query(name)`, `cookie(name)`, `body(field)`, `path`, `host`, `route`, `method`, `verified_before(header(name))`, several as
    /// `client + path`, or a name under `keys`; the first of a list that the request has counts.
    pub key: At<OneOrMany>,
    /// A request without such a key: `share` (one bucket for all of them), `skip`, or a status such as `401`. Default: `share`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_missing_key")]
    pub on_missing_key: Option<At<String>>,
    /// Units that a request spends. Default: 1.
    #[serde(default, deserialize_with = "said")]
    pub cost: Option<At<Cost>>,
    /// The status of refusals by the limits of this rule and by its `in_flight`, from 400 to 599. Default: that of the policy, or 429.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub status: Option<At<String>>,
    /// A name under `in_flight`, which limits these requests that are under way at once.
    #[serde(default, deserialize_with = "said")]
    pub in_flight: Option<At<String>>,
    /// A rule about descriptors of Envoy, or a list, that does not apply to a call if one of its descriptors meets this rule.
    #[serde(default, deserialize_with = "said")]
    pub replaces: Option<At<OneOrMany>>,
    /// The importance of such a request, where its `in_flight` is adaptive: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`; or
    /// where it is read, `jwt(claim)` or `header(name)`, which the proxies under `clients` set. The first of a list that says one counts.
    /// Default: `critical`.
    #[serde(default, deserialize_with = "said")]
    pub class: Option<At<OneOrMany>>,
    /// `down`, `up` or `both`: the limits count bytes of bodies of responses, of requests or of both, in place of requests, and hold the bodies to
    /// their quotas, as `1MB/s burst 2MB`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::direction")]
    pub bandwidth: Option<At<String>>,
    /// Responses after which the units are given back: `2xx`, `502`, or a list.
    #[serde(default, deserialize_with = "said")]
    pub refund_if: Option<At<OneOrMany>>,
    /// The place where the response tells what the request really costs: the difference to `cost` is given back, or charged.
    #[serde(default, deserialize_with = "said")]
    pub settle: Option<At<SettleEntry>>,
}

/// Places where a response tells the cost of its request; the first that has a number counts, in this order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "settle")]
pub(crate) struct SettleEntry {
    /// A header field.
    #[serde(default, deserialize_with = "said")]
    pub header: Option<At<String>>,
    /// A trailer field.
    #[serde(default, deserialize_with = "said")]
    pub trailer: Option<At<String>>,
    /// A field of the JSON body, as `usage.total_tokens`, or several with the units that one of each costs.
    #[serde(default, deserialize_with = "said")]
    pub json: Option<At<PricesEntry>>,
    /// Such fields in the data of server-sent events, each as in the last event that has it.
    #[serde(default, deserialize_with = "said")]
    pub sse: Option<At<PricesEntry>>,
    /// `response`: the length of its body.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::bytes")]
    pub bytes: Option<At<String>>,
    /// The cost where the response ends early: `reserved`, what the request has spent at first, or `seen`, what the response has told until
    /// then. Default: `reserved`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_abort")]
    pub on_abort: Option<At<String>>,
}

/// The requests that something is about: all conditions must hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "condition")]
pub(crate) struct Condition {
    /// A path as axum writes it, `/users/{id}`, `/assets/*` for everything below, `/api*`, `*.js`, `{ regex: .. }`, or a list of which one
    /// matches.
    #[serde(default, deserialize_with = "said")]
    pub path: Option<At<TextWanted>>,
    /// A method, or a list.
    #[serde(default, deserialize_with = "said")]
    pub method: Option<At<OneOrMany>>,
    /// The host that the request names, without its port, `*.example.org` for all below a domain, `{ regex: .. }`, or a list.
    #[serde(default, deserialize_with = "said")]
    pub host: Option<At<TextWanted>>,
    /// Header fields and the values that they must have: a text in which `*` stands for any text, `{ regex: .. }`, a list of which one
    /// matches, or `{ present: false }`.
    #[serde(default, deserialize_with = "said")]
    pub header: Option<At<FieldValues>>,
    /// Parameters of the query and the values that they must have, as for `header`.
    #[serde(default, deserialize_with = "said")]
    pub query: Option<At<FieldValues>>,
    /// Fields of the request's body, JSON or a form, as `model`, and the values that they must have, as for `header`. One that cannot be read may have
    /// any value, unless `on_unreadable_body` says otherwise.
    #[serde(default, deserialize_with = "said")]
    pub body: Option<At<FieldValues>>,
    /// A network in which the address of the client must be, or a list.
    #[serde(default, deserialize_with = "said")]
    pub client: Option<At<OneOrMany>>,
    /// The tier that the request must be in, or a list, for a name under `tiers`: `{ plan: [free, pro] }`. A request that names no
    /// tier, or one that is not listed, is in the default one.
    #[serde(default, deserialize_with = "said")]
    pub tier: Option<At<Named<At<OneOrMany>>>>,
    /// The domain of a descriptor of Envoy's rate limit protocol, or a list. A condition with it, or with `descriptor`, is about
    /// descriptors, and about no request.
    #[serde(default, deserialize_with = "said")]
    pub domain: Option<At<OneOrMany>>,
    /// The entries that a descriptor must have, each with a value, a list of values, `prefix*`, `"*"`, `{ regex: .. }` or `{ present: false }`: as names,
    /// among others and in any order; or as a list, exactly these and in the order of the proxy. The entry `"*"` stands for all others: `"*": "*"` if they may
    /// be there, `"*": { present: false }` if not.
    #[serde(default, deserialize_with = "said")]
    pub descriptor: Option<At<DescriptorEntries>>,
    /// A condition that must not hold.
    #[serde(default, deserialize_with = "said")]
    pub not: Option<At<Box<Self>>>,
}

impl Condition {
    /// Whether it would hold for every request.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { path, method, host, header, query, body, client, tier, domain, descriptor, not } = self;
        [path, host].iter().all(|texts| texts.is_none())
            && [method, client, domain].iter().all(|list| list.is_none())
            && [header, query, body].iter().all(|fields| fields.is_none())
            && tier.is_none()
            && descriptor.is_none()
            && not.is_none()
    }

    /// The fields of the request's body that it looks at.
    pub(crate) fn body_fields(&self) -> Vec<&At<String>> {
        let own = self.body.iter().flat_map(|fields| fields.value.0.iter().map(|(name, _)| name));
        let of_not = self.not.iter().flat_map(|not| not.value.body_fields());
        own.chain(of_not).collect()
    }

    /// Whether it is about descriptors, and about no request.
    pub(crate) fn is_about_descriptors(&self) -> bool {
        self.domain.is_some() || self.descriptor.is_some()
    }
}
