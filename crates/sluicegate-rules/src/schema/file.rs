//! The file, section by section.

use super::sections::{ApiKeysEntry, AtOnceEntry, Clients, Jwt, PathsEntry, RoomEntry, StoreEntry};
use super::shapes::{
    Cost, DescriptorEntries, FieldValues, Named, OneOrMany, PricesEntry, TextWanted, written,
};
use super::words;
use crate::at::{At, Position};

entry! {
    /// Rate limits of a service.
    File as "rules_file":
    /// The version of these words: 1.
    version: At<String> = "words::version",
    /// The store that keeps the counts. Without this section the program gives one.
    store?: At<StoreEntry>,
    /// The way to find the address of a client. Default: it is the peer of the connection.
    clients?: At<Clients>,
    /// The way in which the service behind reads paths.
    paths?: At<PathsEntry>,
    /// The verification of JSON Web Tokens.
    jwt?: At<Jwt>,
    /// The API keys that are known, and the tier or the quotas of each.
    api_keys?: At<ApiKeysEntry>,
    /// Budgets by name; each is inert until a rule names it.
    policies[]: Named<At<PolicyEntry>>,
    /// Sizes of one limit, such as the plans of a service.
    tiers[]: Named<At<TiersEntry>>,
    /// Names for keys: the first of the list that a request has, or `program`, whose code finds the key.
    keys[]: Named<At<OneOrMany>>,
    /// The header fields of responses: `legacy` (`X-RateLimit-*`), `ietf` (`RateLimit`), `all` (both), `all-on-refusal` (`legacy`,
    /// and both on refusals), `draft-6` or `draft-7` (those of earlier drafts), `spring` (those of Spring Cloud Gateway), `openai` (those of OpenAI's API, for each policy) or `none`. The
    /// numbers under `in_flight` are told in the `RateLimit` of today alone. Default: `all-on-refusal`.
    headers?: At<String> = "words::headers",
    /// A request whose body a rule asks for, and that cannot be read, because it is compressed, neither JSON nor a form, too long or too slow: `match`
    /// (it may have any value, so all limits apply), `skip` (it has no fields), or the status of a refusal, such as `415`. Default: `match`.
    on_unreadable_body?: At<String> = "words::on_unreadable_body",
    /// Limits on requests that are under way at once, by name, as `exports: 10`; each is inert until a rule names it.
    in_flight[]: Named<At<AtOnceEntry>>,
    /// Requests that are refused before all else.
    deny[]: Vec<At<DenialEntry>>,
    /// Requests that no rule limits.
    exempt[]: Vec<At<Exemption>>,
    /// Every rule that matches applies; within a group, only the first that matches. An empty list says that all policies are checked by
    /// name.
    rules?: Vec<At<RuleEntry>>,
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

entry! {
    /// A named budget.
    PolicyEntry as "policy":
    /// The way it is counted, unless a quota names another algorithm. Default: `gcra`.
    algorithm?: At<String> = "words::algorithm",
    /// The quota, such as `5/min`, `10/s burst 20`, `1000/12h`, `60/min burst 100 start 10`, `10000/d by fixed-window`, or a list of quotas
    /// that all hold.
    quota: At<OneOrMany>,
    /// The place where a request gives the quotas of its key, which replace these: `jwt(claim)`, `api_key` (the `quota` of its line) or
    /// `header(name)`, which the proxies under `clients` set; the first of a list that is there counts. Its text is `500/min`, several
    /// quotas with commas between them, or `unlimited`.
    quota_by?: At<OneOrMany>,
    /// Quotas of single keys, which replace these: `acme: 10000/min`, as many as there are here, or `unlimited`. A key is named by its
    /// claim, header field or address, an API key by its sha256.
    overrides[]: Named<At<OneOrMany>>,
    /// `enforce`, `shadow` (it is counted and refuses nobody) or `off`. Default: `enforce`.
    mode?: At<String> = "words::mode",
    /// Whether clients see no fields of it. Default: false.
    hidden?: At<bool>,
    /// Whether refused requests spend of it too, up to its capacity, so that a client has to pause. Default: false.
    count_rejected?: At<bool>,
    /// `deny`, or the longest wait as `wait 5s`; `defer`: its requests are kept and carried out later, by a queue of the program; or `room`: its
    /// requests go through a waiting room at this rate, instead of spending. Default: `deny`.
    on_exceeded?: At<String> = "words::on_exceeded_of_policy",
    /// The status of refusals by this policy, from 400 to 599, unless the rule has one. Default: 429.
    status?: At<String> = "words::number",
    /// The settings of the waiting room, with `on_exceeded: room`.
    room?: At<RoomEntry>,
    /// `local`, `allow` or `deny`: what happens while the store cannot be reached. Default: `local`.
    on_outage?: At<String> = "words::on_outage",
    /// The number of keys for which a store in memory has room.
    table_size?: At<String> = "words::number",
    /// How the keys start where a reload changes the quotas: `spent` (spent units stay spent), `reset` (with the whole quota), `as-is` (with
    /// the units that were left), `proportional` (with the same part) or `additive` (with the units that were left and the growth).
    /// Default: `spent`.
    inherit?: At<String> = "words::inherit",
    /// Refuses a key outright that goes on after many refusals.
    suspend?: At<Suspend>,
    /// Another quota in the place of the first one, while the requests of the policy are unusual.
    tighten?: At<Tighten>,
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

entry! {
    /// Another quota while the requests of a policy are unusual.
    Tighten as "tighten":
    /// The quota, below the first one of the policy, as `3/min burst 10`.
    to: At<String>,
    /// The longest time for which it stands, as `30min`.
    r#for: At<String>,
    /// The number of instances that have to see the alarm, where they share a store. Default: 2.
    agreed_by?: At<String> = "words::number",
    /// `new` where keys that came before the requests became unusual keep what they have. Default: `all`.
    keys?: At<String> = "words::all_or_new",
    /// `true` where the log says what would be done, and nothing is. Default: false.
    shadow?: At<bool>,
}

entry! {
    /// Refuses a key outright that goes on after many refusals.
    Suspend as "suspend":
    /// The number of refusals, and the time in which they come, as `100 in 10min`.
    after: At<String>,
    /// The length of the first suspension, as `30min`; each further one is twice as long.
    r#for: At<String>,
    /// The longest that a suspension lasts, as `1d`.
    up_to?: At<String>,
    /// The time for which a suspension counts towards the next one, as `1d`.
    remember?: At<String>,
}

entry! {
    /// Sizes of one limit, such as the plans of a service.
    TiersEntry as "tiers":
    /// The policy whose keys have the quotas of their tier, so that a key keeps what it has spent when its tier changes.
    policy?: At<String>,
    /// The place where the tier of a request is read: `jwt(claim)`, `api_key` or `header(name)`; the first of a list that is there counts.
    by: At<OneOrMany>,
    /// The quotas of each tier, as many as the policy has; or the name of a policy of its own, or `unlimited`.
    tiers: Named<At<OneOrMany>>,
    /// The tier of requests that have none, or one that is not listed.
    default_tier: At<String>,
}

entry! {
    /// Requests that are refused before all else.
    DenialEntry as "denial":
    /// The name of the denial in logs and in `explain`.
    name: At<String>,
    /// The requests that are refused.
    only_if: At<Condition>,
    /// The status of the refusal, from 400 to 599. Default: 403.
    status?: At<String> = "words::number",
}

entry! {
    /// Requests that no rule limits.
    Exemption as "exemption":
    /// The name of the exemption in logs and in `explain`.
    name: At<String>,
    /// The requests that are exempt.
    only_if: At<Condition>,
}

entry! {
    /// Limits, and the requests that they apply to.
    RuleEntry as "rule":
    /// The name of the rule in logs and in `explain`.
    name: At<String>,
    /// A group of rules, of which only the first that matches applies.
    group?: At<String>,
    /// The requests that the rule is about. Default: all.
    only_if?: At<Condition>,
    /// The policies, or tiers, that such a request spends from: all of them, or none. A rule without it has an `in_flight`.
    limit?: At<OneOrMany>,
    /// The part of each tier's quota that this rule has, as `1/10`; shows as policy `tier.rule`.
    share?: At<String>,
    /// The key of a request: `client`, `peer`, `everybody`, `api_key`, `api_key(header)`, `jwt(claim)`, `header(name)`,
    /// `query(name)`, `cookie(name)`, `body(field)`, `path`, `host`, `route`, `method`, `verified_before(header(name))`, several as
    /// `client + path`, or a name under `keys`; the first of a list that the request has counts.
    key: At<OneOrMany>,
    /// A request without such a key: `share` (one bucket for all of them), `skip`, or a status such as `401`. Default: `share`.
    on_missing_key?: At<String> = "words::on_missing_key",
    /// Units that a request spends. Default: 1.
    cost?: At<Cost>,
    /// The status of refusals by the limits of this rule and by its `in_flight`, from 400 to 599. Default: that of the policy, or 429.
    status?: At<String> = "words::number",
    /// A name under `in_flight`, which limits these requests that are under way at once.
    in_flight?: At<String>,
    /// A rule about descriptors of Envoy, or a list, that does not apply to a call if one of its descriptors meets this rule.
    replaces?: At<OneOrMany>,
    /// The importance of such a request, where its `in_flight` is adaptive: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`; or
    /// where it is read, `jwt(claim)` or `header(name)`, which the proxies under `clients` set. The first of a list that says one counts.
    /// Default: `critical`.
    class?: At<OneOrMany>,
    /// `down`, `up` or `both`: the limits count bytes of bodies of responses, of requests or of both, in place of requests, and hold the bodies to
    /// their quotas, as `1MB/s burst 2MB`.
    bandwidth?: At<String> = "words::direction",
    /// Responses after which the units are given back: `2xx`, `502`, or a list.
    refund_if?: At<OneOrMany>,
    /// The place where the response tells what the request really costs: the difference to `cost` is given back, or charged.
    settle?: At<SettleEntry>,
}

entry! {
    /// Places where a response tells the cost of its request; the first that has a number counts, in this order.
    SettleEntry as "settle":
    /// A header field.
    header?: At<String>,
    /// A trailer field.
    trailer?: At<String>,
    /// A field of the JSON body, as `usage.total_tokens`, or several with the units that one of each costs.
    json?: At<PricesEntry>,
    /// Such fields in the data of server-sent events, each as in the last event that has it.
    sse?: At<PricesEntry>,
    /// `response`: the length of its body.
    bytes?: At<String> = "words::bytes",
    /// The cost where the response ends early: `reserved`, what the request has spent at first, or `seen`, what the response has told until
    /// then. Default: `reserved`.
    on_abort?: At<String> = "words::on_abort",
}

entry! {
    /// The requests that something is about: all conditions must hold.
    Condition as "condition":
    /// A path as axum writes it, `/users/{id}`, `/assets/*` for everything below, `/api*`, `*.js`, `{ regex: .. }`, or a list of which one
    /// matches.
    path?: At<TextWanted>,
    /// A method, or a list.
    method?: At<OneOrMany>,
    /// The host that the request names, without its port, `*.example.org` for all below a domain, `{ regex: .. }`, or a list.
    host?: At<TextWanted>,
    /// Header fields and the values that they must have: a text in which `*` stands for any text, `{ regex: .. }`, a list of which one
    /// matches, or `{ present: false }`.
    header?: At<FieldValues>,
    /// Parameters of the query and the values that they must have, as for `header`.
    query?: At<FieldValues>,
    /// Fields of the request's body, JSON or a form, as `model`, and the values that they must have, as for `header`. One that cannot be read may have
    /// any value, unless `on_unreadable_body` says otherwise.
    body?: At<FieldValues>,
    /// A network in which the address of the client must be, or a list.
    client?: At<OneOrMany>,
    /// The tier that the request must be in, or a list, for a name under `tiers`: `{ plan: [free, pro] }`. A request that names no
    /// tier, or one that is not listed, is in the default one.
    tier?: At<Named<At<OneOrMany>>>,
    /// The domain of a descriptor of Envoy's rate limit protocol, or a list. A condition with it, or with `descriptor`, is about
    /// descriptors, and about no request.
    domain?: At<OneOrMany>,
    /// The entries that a descriptor must have, each with a value, a list of values, `prefix*`, `"*"`, `{ regex: .. }` or `{ present: false }`: as names,
    /// among others and in any order; or as a list, exactly these and in the order of the proxy. The entry `"*"` stands for all others: `"*": "*"` if they may
    /// be there, `"*": { present: false }` if not.
    descriptor?: At<DescriptorEntries>,
    /// A condition that must not hold.
    not?: At<Box<Self>>,
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
