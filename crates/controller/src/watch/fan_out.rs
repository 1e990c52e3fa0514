use std::sync::Arc;

use super::{EventHandler, Invalid};

/// Several event handlers of one watch. Each event is passed to all of them, in order.
///
/// ```
/// use std::sync::Arc;
///
/// use capi_ipam_controller::watch::{EventHandler, FanOut};
/// use k8s_openapi::api::core::v1::Node;
///
/// fn both(index: Arc<dyn EventHandler<Node>>, audit: Arc<dyn EventHandler<Node>>) -> Arc<dyn EventHandler<Node>> {
///     // The index is up to date when the other handler sees an event.
///     Arc::new(FanOut(vec![index, audit]))
/// }
/// # let _ = both(Arc::new(()), Arc::new(()));
/// ```
pub struct FanOut<K>(pub Vec<Arc<dyn EventHandler<K>>>);

impl<K: 'static> EventHandler<K> for FanOut<K> {
    fn init(&self) {
        self.0.iter().for_each(|handler| handler.init());
    }

    fn init_done(&self) {
        self.0.iter().for_each(|handler| handler.init_done());
    }

    fn restored(&self) {
        self.0.iter().for_each(|handler| handler.restored());
    }

    fn apply(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.apply(object));
    }

    fn delete(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.delete(object));
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.0
            .iter()
            .for_each(|handler| handler.apply_invalid(object));
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.0
            .iter()
            .for_each(|handler| handler.delete_invalid(object));
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    struct Recorder {
        name: &'static str,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl Recorder {
        fn record(&self, call: &str) {
            self.calls.lock().push(format!("{} {call}", self.name));
        }
    }

    impl EventHandler<u8> for Recorder {
        fn init(&self) {
            self.record("init");
        }

        fn init_done(&self) {
            self.record("init_done");
        }

        fn apply(&self, object: &u8) {
            self.record(&format!("apply {object}"));
        }

        fn delete(&self, object: &u8) {
            self.record(&format!("delete {object}"));
        }

        fn apply_invalid(&self, _: &Invalid) {}

        fn delete_invalid(&self, _: &Invalid) {}
    }

    #[test]
    fn handlers_see_events_in_order() {
        let calls = Arc::default();
        let recorder = |name| -> Arc<dyn EventHandler<u8>> {
            Arc::new(Recorder {
                name,
                calls: Arc::clone(&calls),
            })
        };
        let both = FanOut(vec![recorder("a"), recorder("b")]);
        both.init();
        both.apply(&1);
        both.init_done();
        both.delete(&2);
        let expected = [
            "a init",
            "b init",
            "a apply 1",
            "b apply 1",
            "a init_done",
            "b init_done",
            "a delete 2",
            "b delete 2",
        ];
        assert_eq!(*calls.lock(), expected);
    }
}
