//! Random walks through a day of two management clusters: one step is a second, claims are created
//! and deleted all the time, and faults happen at random.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use stateright::{Expectation, Model};

use super::actions::Action;
use super::mutations::Mutation;
use super::state::{CLUSTERS, Claim, State};
use super::{Blocks, Scope, Third};

/// The number of steps.
const DAY: usize = 24 * 60 * 60;
/// How many days are walked.
const DAYS: u64 = 20;
/// The part of the steps that are faults, if one is possible.
const FAULTS: f64 = 0.02;
/// The number of steps without faults and new claims after which nothing is left to do.
const MAX_REST: usize = 10_000;

/// No limit.
const ANY: u32 = u32::MAX;

/// Two blocks, two managers in the first cluster, and every fault but lost writes.
const FAULTY: Scope = Scope {
    blocks: 2,
    managers: 3,
    lives: [ANY, ANY, 0],
    crashes: ANY,
    lost_replies: ANY,
    lost_writes: 0,
    lost_records: 0,
    old_reads: ANY,
    max_revision: ANY,
    max_version: ANY,
    joins: false,
    ends: false,
    restores: 0,
    moves: false,
    third: Third::First,
    registry_restores: 0,
    mutation: None,
};

struct Walk {
    model: Blocks,
    state: State,
    random: StdRng,
    /// How many claims of each cluster were bound.
    bound: [u64; CLUSTERS],
}

fn is_fault(action: Action) -> bool {
    matches!(
        action,
        Action::Crash(_)
            | Action::LoseReply(..)
            | Action::ReadOld(..)
            | Action::LoseWrite(_)
            | Action::LoseRecord(_)
            | Action::EndSharing
    )
}

impl Walk {
    fn new(scope: Scope, seed: u64) -> Self {
        let model = Blocks(scope);
        let state = model.init_states().remove(0);
        Self {
            model,
            state,
            random: StdRng::seed_from_u64(seed),
            bound: [0; CLUSTERS],
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.model.actions(&self.state, &mut actions);
        actions
    }

    /// Does one of these actions, and checks what has to hold in every state.
    fn step(&mut self, among: &[Action]) {
        let action = among[self.random.random_range(0..among.len())];
        let before = self.state.clone();
        let Some(after) = self.model.next_state(&before, action) else {
            return;
        };
        for cluster in 0..CLUSTERS {
            let is_new = before.claims[cluster] != Claim::Bound;
            self.bound[cluster] += u64::from(is_new && after.claims[cluster] == Claim::Bound);
        }
        for property in self.model.properties() {
            let is_checked = property.expectation == Expectation::Always;
            assert!(
                !is_checked || (property.condition)(&self.model, &after),
                "{}: {action:?} in {before:#?}",
                property.name
            );
        }
        self.state = after;
    }

    fn day(&mut self) {
        for _ in 0..DAY {
            let is_faulty = self.random.random_bool(FAULTS);
            let all = self.actions();
            let wanted = |action: &Action| is_fault(*action) == is_faulty;
            let among: Vec<Action> = all.iter().copied().filter(wanted).collect();
            if !among.is_empty() {
                self.step(&among);
            } else if !all.is_empty() {
                self.step(&all);
            }
        }
    }

    /// Goes on without faults and without new claims until nothing is left to do.
    fn rest(&mut self) {
        for _ in 0..MAX_REST {
            let mut among = self.actions();
            among.retain(|action| {
                let is_new = matches!(action, Action::CreateClaim(_) | Action::DeleteClaim(_));
                !is_new && !is_fault(*action)
            });
            if among.is_empty() {
                return;
            }
            self.step(&among);
        }
        panic!("something is always left to do: {:#?}", self.state);
    }
}

/// Walks through days with this scope. Each day ends with a rest. A single day may come to rest
/// early: each cluster has reserved an address of a block that both know to be contested.
fn walk(scope: Scope) {
    let mut bound = [0; CLUSTERS];
    for seed in 0..DAYS {
        let mut walk = Walk::new(scope, seed);
        walk.day();
        walk.rest();
        for (sum, of_day) in bound.iter_mut().zip(walk.bound) {
            *sum += of_day;
        }
    }
    let served = bound
        .iter()
        .zip(scope.lives)
        .filter(|(_, lives)| *lives > 0);
    let mut counts = served.map(|(bound, _)| *bound);
    assert!(
        counts.all(|bound| bound > 1_000 * DAYS),
        "claims are hardly bound: {bound:?}"
    );
}

#[test]
fn day_with_faults_doubles_no_address() {
    walk(FAULTY);
}

/// The registry loses acknowledged writes and records: addresses can be in two clusters, which both
/// know then.
#[test]
fn day_with_lost_writes_ends_in_known_conflicts() {
    walk(Scope {
        lost_writes: 20,
        lost_records: 20,
        ..FAULTY
    });
}

/// A walk finds what the precautions are for.
#[test]
fn day_without_a_precaution_doubles_an_address() {
    let mutated = Scope {
        mutation: Some(Mutation::BindWithoutCheck),
        ..FAULTY
    };
    let walked = std::panic::catch_unwind(|| walk(mutated));
    assert!(walked.is_err(), "no property is violated");
}
