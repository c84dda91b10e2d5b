//! The page of metrics in the text format of Prometheus, version 0.0.4, made from the page in OpenMetrics.
//!
//! The library writes OpenMetrics alone, which whoever has not asked for it need not understand. The older format calls a
//! family as its samples are called, suffix included, has fewer types, and neither units nor an end.

use std::fmt::Write;

pub(super) fn from_open_metrics(page: &str) -> Result<String, std::fmt::Error> {
    let mut plain = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# HELP ") {
            // The type comes next, and only with it the name is known.
            help = family.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|family| family.rsplit_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(help) = help.take() {
                writeln!(plain, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(plain, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(plain, "{line}")?;
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn every_kind_of_metric_is_said_as_the_older_format_says_it() {
        let mut registry = Registry::default();
        registry.register("hits", "Hits, all of them", Counter::<u64>::default());
        registry.register("build", "The build", Info::new([("version", "1 # 2")]));
        registry.register("open", "Open ones", Gauge::<i64>::default());
        registry.register_with_unit("wait", "Waits", Unit::Seconds, Histogram::new([1.0]));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let expected = "\
# HELP hits_total Hits, all of them.
# TYPE hits_total counter
hits_total 0
# HELP build_info The build.
# TYPE build_info gauge
build_info{version=\"1 # 2\"} 1
# HELP open Open ones.
# TYPE open gauge
open 0
# HELP wait_seconds Waits.
# TYPE wait_seconds histogram
wait_seconds_sum 0.0
wait_seconds_count 0
wait_seconds_bucket{le=\"1.0\"} 0
wait_seconds_bucket{le=\"+Inf\"} 0
";
        assert_eq!(from_open_metrics(&page).unwrap(), expected);
        assert_eq!(from_open_metrics("# TYPE x unknown\nx 1\n# EOF\n").unwrap(), "# TYPE x untyped\nx 1\n");
    }
}
