//! The reconcile of one claim, request by request.
//!
//! The order of the requests is that of the machines of `crates/protocol`, which the product runs
//! as well. This is their driver in the model: it sends the requests to the server of the model,
//! keeps what was read, and answers lookups from the memory of the manager. One request to the API
//! server, with its effect in memory, is one step of the model.
//!
//! A mutation is a driver that does not do what a step says.

mod claim;
mod memory;
mod provider;
mod requests;
mod sets;

use capi_ipam_protocol::bind::{self, Bind};
use capi_ipam_protocol::decision::{
    self, AddressState, ClaimView, ClusterState, Decision, EarlyRelease,
};
use capi_ipam_protocol::release::{self, Release};

use crate::mutations::Mutation;
use crate::pool;
use crate::scope::Scope;
use crate::server::Outcome;
use crate::state::{
    Address, CLEAN_UP, Claim, Early, Manager, Operation, Provider, Request, State, Task,
};

/// The decision of a manager for a claim. `Nothing` if it does not serve the claim, or if the claim
/// waits.
pub(crate) fn decide(scope: &Scope, state: &State, manager: usize, name: usize) -> Decision {
    let known = &state.managers[manager];
    let Some(claim) = known.claims[name].filter(|claim| scope.serves(manager, name, *claim)) else {
        return Decision::Nothing;
    };
    let view = ClaimView {
        deleting: claim.deleting,
        has_finalizer: claim.finalizer,
        has_foreign_finalizers: claim.foreign
            && !scope.has_mutation(Mutation::ReleaseDespiteFinalizers),
        paused: false,
        bound: claim.bound.is_some(),
        not_ready: false,
        cluster: ClusterState::None,
        address: match known.addresses[name] {
            None => AddressState::Absent,
            Some(found) if found.owner == claim.life && found.deleting => AddressState::Deleting,
            Some(found) if found.owner == claim.life && found.finalizer => AddressState::Valid,
            Some(_) => AddressState::Invalid,
        },
        holds_address: pool::holds_address(scope, known, name, claim),
        early_release: EarlyRelease::No,
        released_early: false,
        pool: Some(pool::state(scope, known)),
    };
    match decision::decide(&view) {
        decided @ (Decision::Bind | Decision::Release) => decided,
        _ => Decision::Nothing,
    }
}

/// One step of one task.
pub(crate) struct Worker<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) state: &'a mut State,
    pub(crate) manager: usize,
    /// The index of the task.
    slot: usize,
    pub(crate) name: usize,
    pub(crate) task: Task,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(scope: &'a Scope, state: &'a mut State, manager: usize, slot: usize) -> Self {
        let known = &state.managers[manager];
        let name = if slot == CLEAN_UP {
            known.cleaning.into()
        } else {
            slot
        };
        let task = known.tasks[slot];
        Self {
            scope,
            state,
            manager,
            slot,
            name,
            task,
        }
    }
}

impl Worker<'_> {
    /// Sends the next request. `false` when there is none, or when it cannot have this outcome.
    pub(crate) fn run(&mut self, outcome: Outcome) -> bool {
        if self.task.is_idle() {
            self.begin();
        }
        self.advance();
        let Some(write) = self.write() else {
            if outcome != Outcome::Answered || self.task.is_idle() {
                return false;
            }
            self.read();
            self.advance();
            self.store();
            return true;
        };
        // A write also affects the copies of this task.
        self.store();
        let answer = self.state.send(self.scope, write, outcome);
        self.task = self.state.managers[self.manager].tasks[self.slot];
        self.answered(answer);
        self.advance();
        self.store();
        true
    }

    fn store(&mut self) {
        self.state.managers[self.manager].tasks[self.slot] = self.task;
    }

    fn has_mutation(&self, mutation: Mutation) -> bool {
        self.scope.has_mutation(mutation)
    }

    fn memory(&self) -> &Manager {
        &self.state.managers[self.manager]
    }

    fn memory_mut(&mut self) -> &mut Manager {
        &mut self.state.managers[self.manager]
    }

    fn life(&self) -> u8 {
        self.task.claim.life
    }

    fn own_name(&self) -> u8 {
        u8::try_from(self.name).unwrap_or_default()
    }

    /// Starts the operation that the claim needs.
    fn begin(&mut self) {
        if self.slot == CLEAN_UP {
            return;
        }
        let decision = decide(self.scope, self.state, self.manager, self.name);
        let Some(claim) = self.memory().claims[self.name] else {
            return;
        };
        self.task = Task {
            claim,
            ..Task::default()
        };
        let known = self.memory().addresses[self.name];
        match decision {
            Decision::Bind => {
                let looks_up = !self.has_mutation(Mutation::AllocateBeforeLookup);
                self.task.operation = Operation::Bind(Bind::start(bind::Facts {
                    has_finalizer: claim.finalizer,
                    address_is_known: known.is_some() && looks_up,
                    is_bound: claim.bound.is_some(),
                    allocates_early: self.scope.early,
                }));
            }
            Decision::Release => {
                let is_complete =
                    |seen: &Address| seen.owner == claim.life && seen.finalizer && !seen.deleting;
                self.task.existing = known.filter(is_complete);
                self.task.operation = Operation::Release(Release::start(release::Facts {
                    address_is_known: self.task.existing.is_some(),
                    has_finalizer: claim.finalizer,
                    is_early: false,
                }));
                if self.has_mutation(Mutation::UnreserveBeforeRemoval) {
                    self.start_free();
                }
            }
            Decision::Nothing
            | Decision::FetchPool
            | Decision::Wait(_)
            | Decision::ReleaseEarly => {}
        }
    }

    /// Answers lookups until a machine needs a request, or the operation has ended.
    fn advance(&mut self) {
        while !self.task.is_idle() && self.task.request == Request::None {
            match (self.task.provider, self.task.clean_up, self.task.operation) {
                (Provider::Allocate(allocate), ..) => self.allocate_step(allocate.step()),
                (Provider::Adopt(adopt), ..) => self.adopt_step(adopt.step()),
                (Provider::Free(free), ..) => self.free_step(free.step()),
                (Provider::Idle, Some(clean_up), _) => self.clean_up_step(clean_up.step()),
                (Provider::Idle, None, Operation::Bind(bind)) => self.bind_step(bind.step()),
                (Provider::Idle, None, Operation::Release(release)) => {
                    self.release_step(release.step());
                }
                (Provider::Idle, None, Operation::CleanUp(clean_up)) => {
                    self.clean_up_step(clean_up.step());
                }
                (Provider::Idle, None, Operation::None) => {}
            }
        }
    }

    fn send(&mut self, request: Request) {
        self.task.request = request;
    }

    /// Ends the reconcile and drops an unused proposal.
    fn end(&mut self) {
        self.drop_candidate();
        self.task = Task::default();
    }

    /// A request has failed. If A1 is concurrent, its result decides whether to continue.
    fn fail(&mut self) {
        let is_early = matches!(
            self.task.operation,
            Operation::Bind(bind) if bind.step() == bind::Step::AddFinalizerAndAllocate
        );
        if !is_early || self.task.early.is_some() || self.task.clean_up.is_some() {
            return self.end();
        }
        self.drop_candidate();
        self.task.provider = Provider::Idle;
        self.task.request = Request::None;
        self.task.early = Some(Early::Failed);
    }
}

/// Whether the claim of that name is this one, and not being deleted.
pub(crate) fn lives(claim: Option<Claim>, life: u8) -> bool {
    claim.is_some_and(|claim| claim.life == life && !claim.deleting)
}
