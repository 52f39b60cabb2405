//! A scene is played: from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sluicegate_tests::random::Random;

use crate::adaptive::limiter::Limiter;
use crate::adaptive::server::{Workers, exponential, micros};
use crate::adaptive::{Limit, Load, Scene, Server, Times};

/// What became of a scene under a limit.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// Requests that were refused.
    pub shed: u64,
    /// The limit, each from a moment in microseconds on.
    pub limits: Vec<(u64, u64)>,
}

/// An answer of the server.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When it came, in microseconds.
    pub at_us: u64,
    /// How long its client has waited, in microseconds.
    pub latency_us: u64,
    /// Whether its client was still there.
    pub is_good: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of this client.
    Comes(usize),
    /// A request has waited for something else, and now needs a worker.
    Waited(usize),
    Worked(usize),
    StandStill,
    GoOn,
    PhaseBegins,
}

struct Request {
    came_us: u64,
    client: usize,
}

struct Play<'a> {
    scene: &'a Scene,
    workers: Workers,
    limiter: Limiter,
    /// By their moment; of one moment, in the order in which they were said.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    said: u64,
    requests: Vec<Request>,
    played: Played,
    random: Random,
}

/// Plays a scene. Requests, what they cost and when they come are the same for each limit as far as clients let them be.
#[must_use]
pub fn play(scene: &Scene, server: Server, times: Times, seed: u64, limit: Limit) -> Played {
    let mut play = Play {
        scene,
        workers: Workers::new(server, times, Random::new(seed ^ 0x776f_726b)),
        limiter: Limiter::new(limit),
        events: BinaryHeap::new(),
        said: 0,
        requests: Vec::new(),
        played: Played::default(),
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
            Load::Open => self.say(0, Event::Comes(0)),
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
            Event::Comes(client) => self.comes(now_us, client),
            Event::Waited(request) => self.workers.add(request),
            Event::Worked(request) => self.worked(now_us, request),
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
        let is_open = self.scene.load == Load::Open;
        let phase = self.scene.phase(now_us);
        if is_open {
            let rate = self.workers.server.capacity() * phase.load;
            let next_us = micros(exponential(&mut self.random) * 1e6 / rate);
            self.say(now_us + next_us, Event::Comes(client));
        }
        if !self.limiter.enter() {
            self.played.shed += 1;
            if !is_open {
                let later_us = 100_000 + self.random.below(100_000);
                self.say(now_us + later_us, Event::Comes(client));
            }
            return;
        }
        let request = self.requests.len();
        self.requests.push(Request { came_us: now_us, client });
        let waits_us = micros(phase.waits * self.workers.server.work_us as f64);
        self.say(now_us + waits_us, Event::Waited(request));
    }

    fn worked(&mut self, now_us: u64, request: usize) {
        if !self.workers.end(request) {
            return;
        }
        let Request { came_us, client } = self.requests[request];
        let latency_us = now_us - came_us;
        let is_good = latency_us <= self.workers.server.patience_us;
        self.played.answers.push(Answer { at_us: now_us, latency_us, is_good });
        if self.limiter.leave(now_us, latency_us, !is_good) {
            self.note_limit(now_us);
        }
        if self.scene.load != Load::Open {
            self.say(now_us + 1_000, Event::Comes(client));
        }
    }

    fn note_limit(&mut self, now_us: u64) {
        self.played.limits.push((now_us, self.limiter.limit()));
    }
}
