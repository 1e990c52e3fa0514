//! Gauges whose values are computed when they are scraped.

use std::fmt;

use capi_ipam_controller::metrics::Description;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The labels of a value.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Encodes a gauge.
pub(super) fn encode<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    description: &Description,
    rows: impl Iterator<Item = (Labels<'a>, i64)>,
) -> Result<(), fmt::Error> {
    let Description { name, help, .. } = description;
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, count) in rows {
        ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
