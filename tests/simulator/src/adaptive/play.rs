//! A scene is played: from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_tests::random::Random;

use crate::adaptive::limiter::{Entry, Limiter};
use crate::adaptive::server::{Workers, exponential, micros};
use crate::adaptive::{Limit, Load, Scene};

/// What became of a scene under a limit.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// By seconds: the requests that came, and those that were refused.
    pub seconds: Vec<Second>,
    /// The limit of the first instance, each from a moment in microseconds on.
    pub limits: Vec<(u64, u64)>,
}

/// The requests of a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Those that came in it.
    pub came: u64,
    /// Those of them that were refused, at once or after their wait.
    pub refused: u64,
}

/// An answer of the server.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When it came, in microseconds.
    pub at_us: u64,
    /// How long its client has waited, in microseconds.
    pub latency_us: u64,
    /// Whether it was no error, and its client was still there.
    pub is_good: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of this client.
    Comes(usize),
    Burst,
    /// A request has waited for a permit for as long as it may.
    Expires(usize),
    /// A request has waited for something else, and now needs a worker.
    Waited(usize),
    Worked(usize),
    Failed(usize),
    StandStill,
    GoOn,
    PhaseBegins,
}

struct Request {
    came_us: u64,
    begun_us: u64,
    client: usize,
    instance: usize,
}

struct Play<'a> {
    scene: &'a Scene,
    workers: Workers,
    limiters: Vec<Limiter>,
    /// By their moment; of one moment, in the order in which they were said.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    said: u64,
    requests: Vec<Request>,
    played: Played,
    random: Random,
}

/// The client of requests that come independently of answers.
const ANYONE: usize = usize::MAX;

/// Plays a scene. Requests, what they cost and when they come are the same for each limit as far as clients let them be.
#[must_use]
pub fn play(scene: &Scene, seed: u64, limit: Limit) -> Played {
    let seconds = usize::try_from(scene.seconds + 1).unwrap_or(0);
    let mut play = Play {
        scene,
        workers: Workers::new(scene.server, scene.times, Random::new(seed ^ 0x776f_726b)),
        limiters: (0..scene.instances).map(|_| Limiter::new(limit, scene)).collect(),
        events: BinaryHeap::new(),
        said: 0,
        requests: Vec::new(),
        played: Played { seconds: vec![Second::default(); seconds], ..Played::default() },
        random: Random::new(seed),
    };
    play.note_limit(0);
    play.begin();
    let end_us = scene.seconds * 1_000_000;
    while let Some(Reverse((now_us, _, event))) = play.events.pop()
        && now_us < end_us
    {
        play.meet(now_us, event);
    }
    play.played
}

impl Play<'_> {
    fn say(&mut self, at_us: u64, event: Event) {
        self.said += 1;
        self.events.push(Reverse((at_us, self.said, event)));
    }

    fn begin(&mut self) {
        for phase in &self.scene.phases[1..] {
            self.said += 1;
            self.events.push(Reverse((phase.from * 1_000_000, self.said, Event::PhaseBegins)));
        }
        if let Some((every_ms, _)) = self.scene.pauses_ms {
            self.say(every_ms * 1_000, Event::StandStill);
        }
        match self.scene.load {
            Load::Open => self.say(0, Event::Comes(ANYONE)),
            Load::Bursts { every, .. } => {
                self.say(0, Event::Comes(ANYONE));
                self.say(every * 1_000_000, Event::Burst);
            }
            Load::Closed(each) => {
                let server = self.workers.server;
                for client in 0..each * server.workers {
                    let at_us = self.random.below(server.work_us);
                    self.say(at_us, Event::Comes(client));
                }
            }
        }
    }

    fn meet(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Comes(client) => {
                if client == ANYONE {
                    let next_us = micros(exponential(&mut self.random) * 1e6 / self.scene.rate(now_us));
                    self.say(now_us + next_us, Event::Comes(ANYONE));
                }
                self.comes(now_us, client);
            }
            Event::Burst => {
                let Load::Bursts { of, every } = self.scene.load else { return };
                self.say(now_us + every * 1_000_000, Event::Burst);
                (0..of).for_each(|_| self.comes(now_us, ANYONE));
            }
            Event::Expires(request) => {
                let instance = self.requests[request].instance;
                if self.limiters[instance].expire(request) {
                    self.refuse(now_us, request);
                }
            }
            Event::Waited(request) => self.workers.add(request),
            Event::Worked(request) => self.worked(now_us, request),
            Event::Failed(request) => {
                if let Some((outcome, _)) = self.scene.phase(now_us).fails {
                    self.answer(now_us, request, outcome);
                } else {
                    self.answer(now_us, request, Outcome::Error);
                }
            }
            Event::PhaseBegins => {}
            Event::StandStill => {
                let (every_ms, for_ms) = self.scene.pauses_ms.expect("there are pauses");
                self.workers.stand_still();
                self.say(now_us + for_ms * 1_000, Event::GoOn);
                self.say(now_us + every_ms * 1_000, Event::StandStill);
            }
            Event::GoOn => {
                for request in self.workers.go_on() {
                    self.worked(now_us, request);
                }
            }
        }
        while let Some((request, work_us)) = self.workers.begin(self.scene, now_us) {
            self.say(now_us + work_us, Event::Worked(request));
        }
    }

    fn comes(&mut self, now_us: u64, client: usize) {
        let request = self.requests.len();
        let mut instance = self.random.index(self.limiters.len());
        if self.scene.is_uneven {
            instance = instance.min(self.random.index(self.limiters.len()));
        }
        self.requests.push(Request { came_us: now_us, begun_us: now_us, client, instance });
        self.second(now_us).came += 1;
        match self.limiters[instance].enter(now_us, request) {
            Entry::Begins => self.serve(now_us, request),
            Entry::Waits(longest_us) => self.say(now_us + longest_us, Event::Expires(request)),
            Entry::Refused => self.refuse(now_us, request),
        }
    }

    fn refuse(&mut self, now_us: u64, request: usize) {
        let Request { came_us, client, .. } = self.requests[request];
        self.second(came_us).refused += 1;
        if client != ANYONE {
            let later_us = 100_000 + self.random.below(100_000);
            self.say(now_us + later_us, Event::Comes(client));
        }
    }

    fn serve(&mut self, now_us: u64, request: usize) {
        self.requests[request].begun_us = now_us;
        let phase = self.scene.phase(now_us);
        if let Some((_, after_us)) = phase.fails {
            return self.say(now_us + after_us, Event::Failed(request));
        }
        let waits_us = micros(phase.waits * self.workers.server.work_us as f64);
        self.say(now_us + waits_us, Event::Waited(request));
    }

    fn worked(&mut self, now_us: u64, request: usize) {
        if self.workers.end(request) {
            let is_late = now_us - self.requests[request].begun_us > self.workers.server.patience_us;
            self.answer(now_us, request, if is_late { Outcome::Overload } else { Outcome::Good });
        }
    }

    fn answer(&mut self, now_us: u64, request: usize, outcome: Outcome) {
        let Request { came_us, begun_us, client, instance } = self.requests[request];
        let latency_us = now_us - came_us;
        self.played.answers.push(Answer { at_us: now_us, latency_us, is_good: outcome == Outcome::Good });
        let is_changed = self.limiters[instance].leave(now_us, now_us - begun_us, outcome);
        if is_changed && instance == 0 {
            self.note_limit(now_us);
        }
        while let Some(next) = self.limiters[instance].next(now_us) {
            self.serve(now_us, next);
        }
        if client != ANYONE {
            self.say(now_us + 1_000, Event::Comes(client));
        }
    }

    fn second(&mut self, at_us: u64) -> &mut Second {
        &mut self.played.seconds[usize::try_from(at_us / 1_000_000).unwrap_or(0)]
    }

    fn note_limit(&mut self, now_us: u64) {
        self.played.limits.push((now_us, self.limiters[0].limit()));
    }
}
