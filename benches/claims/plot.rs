//! A plot of the bind rates of the provider and the baselines.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::outcome::{Line, Outcome};

/// A name and its rates, one for each series that has any.
type Curve = (&'static str, RGBColor, fn(&Line) -> f64);

const CURVES: [Curve; 3] = [
    ("baseline", RGBColor(150, 150, 150), |line| {
        line.baseline_per_second
    }),
    ("baseline with reservation", RGBColor(90, 90, 90), |line| {
        line.reserving_baseline_per_second
    }),
    ("provider", RGBColor(20, 90, 200), |line| {
        line.phase.per_second
    }),
];

/// Draws the rates of all series that bind many claims; draws nothing when there are none.
pub(crate) fn draw(outcomes: &[Outcome], path: &Path) -> Result<(), Box<dyn Error>> {
    let bound: Vec<(&str, &Line)> = outcomes
        .iter()
        .filter_map(|outcome| {
            Some((
                outcome.series.as_str(),
                outcome.lines.iter().find(|line| line.what == "bind")?,
            ))
        })
        .collect();
    if bound.is_empty() {
        return Ok(());
    }
    let rates = bound
        .iter()
        .flat_map(|(_, line)| CURVES.map(|(_, _, rate)| rate(line)));
    let most = rates.fold(0.0, f64::max) * 1.15;
    let area = SVGBackend::new(path, (900, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Claims bound per second", ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..bound.len() as f64 - 0.5, 0.0..most)?;
    let name = |place: &f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small whole number"
        )]
        let number = place.round() as usize;
        let is_whole = (place - place.round()).abs() < 0.01 && *place > -0.01;
        bound
            .get(number)
            .filter(|_| is_whole)
            .map_or_else(String::new, |(name, _)| (*name).to_owned())
    };
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh()
        .x_labels(2 * bound.len() + 1)
        .x_label_formatter(&name)
        .draw()?;
    for (name, color, rate) in CURVES {
        let points: Vec<(f64, f64)> = bound
            .iter()
            .enumerate()
            .map(|(place, (_, line))| (place as f64, rate(line)))
            .collect();
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                color.stroke_width(2),
            ))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
        chart.draw_series(
            points
                .iter()
                .map(|point| Circle::new(*point, 4, color.filled())),
        )?;
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}
