//! Released addresses whose reservations are kept, and that other claims and the next claims of the
//! same names get.

use serde_json::json;

use super::{Work, names, range};

impl Work<'_> {
    /// Claims are recreated and get their addresses back. Then other claims need all addresses, and
    /// one waits for an address that it requests.
    pub(super) async fn sticky(&self) {
        let mut spec = range(1, 4);
        spec["allocation"] = json!({ "sticky": true, "requests": true });
        self.consumer.create_pool("web", spec).await;
        let (first, others) = (names("c", 2), names("r", 3));
        self.create_and_bind(&first).await;
        let before = self.consumer.allocated_addresses().await;
        self.delete_all(&first).await;
        self.recreate_all(&first).await;
        self.wait_until_bound(&first).await;
        let annotations = json!({ "ipam.cluster.x-k8s.io/requested-address": before["c2"] });
        let requests = json!({ "annotations": annotations });
        self.consumer
            .create_claim_with_metadata("q1", "web", requests)
            .await;
        self.delete_all(&first).await;
        self.wait_until_deleted(&first).await;
        self.wait_until_bound(&names("q", 1)).await;
        let after = self.consumer.allocated_addresses().await;
        assert_eq!(after["q1"], before["c2"], "a claim gets what it requests");
        // One of them gets an address that is kept for a claim of another name.
        self.create_and_bind(&others).await;
    }
}
