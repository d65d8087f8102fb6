//! The text format of Prometheus, version 0.0.4.
//!
//! Owns the form of the page. Must not fetch samples.
//!
//! Names are ZooKeeper's without `zk_`. A summary has its quantiles as labels; a member of a set
//! has the label `key`. Texts are left out: the format has none.

use std::fmt::{Display, Write};

use zabkeeper_core::driver::metrics::{
    Detail, Number, QUANTILES, Sample, SampleKey, SampleValue, SummaryValue,
};

/// The type of the page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page.
pub(super) fn text(samples: &[Sample]) -> String {
    let mut text = String::new();
    let mut families: Vec<(&str, Vec<&Sample>)> = Vec::new();
    for sample in samples {
        // The members of a set come together.
        let name = &*sample.name;
        let known = sample.key.is_some().then(|| families.iter_mut().rfind(|of| of.0 == name));
        match known.flatten() {
            Some((_, members)) => members.push(sample),
            None => families.push((name, vec![sample])),
        }
    }
    for (name, members) in families {
        let kind = match members.first().map(|sample| &sample.value) {
            Some(SampleValue::Gauge(_)) => "gauge",
            Some(SampleValue::Counter(_)) => "counter",
            Some(SampleValue::Summary(_)) => "summary",
            Some(SampleValue::Text(_)) | None => continue,
        };
        let _infallible = writeln!(text, "# HELP {name} {name}\n# TYPE {name} {kind}");
        for member in members {
            family_member(&mut text, name, member);
        }
    }
    text
}

fn family_member(text: &mut String, name: &str, sample: &Sample) {
    let key = sample.key.as_ref().map(|(SampleKey::Prefix(key) | SampleKey::Suffix(key))| &**key);
    let mut line = |suffix: &str, quantile: Option<f64>, value: &dyn Display| {
        text.push_str(name);
        text.push_str(suffix);
        let quantile = quantile.map(|quantile| quantile.to_string());
        let labels = [("key", key), ("quantile", quantile.as_deref())];
        let mut begin = '{';
        for (label, value) in labels {
            let Some(value) = value else { continue };
            let _infallible = write!(text, "{begin}{label}=\"{}\"", escaped(value));
            begin = ',';
        }
        if begin == ',' {
            text.push('}');
        }
        let _infallible = writeln!(text, " {value}");
    };
    match &sample.value {
        SampleValue::Text(_) => {}
        SampleValue::Gauge(Number::Integer(number)) => line("", None, number),
        SampleValue::Gauge(Number::Float(number)) => line("", None, &float(*number)),
        SampleValue::Counter(count) => line("", None, count),
        SampleValue::Summary(summary) => {
            for (quantile, value) in quantiles(summary) {
                line("", Some(quantile), &float(value));
            }
            line("_count", None, &summary.count);
            line("_sum", None, &float(summary.printed(summary.sum)));
        }
    }
}

/// The quantiles that are printed. Without recent values they are not a number.
fn quantiles(summary: &SummaryValue) -> impl Iterator<Item = (f64, f64)> {
    let printed = match summary.detail {
        Detail::Totals => 0,
        Detail::Basic => 1,
        Detail::Advanced => QUANTILES.len(),
    };
    QUANTILES.into_iter().take(printed).enumerate().map(|(at, quantile)| {
        let value = summary.quantiles.map_or(f64::NAN, |found| summary.printed(found[at]));
        (quantile, value)
    })
}

fn float(number: f64) -> String {
    if number.is_nan() { "NaN".to_owned() } else { number.to_string() }
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
