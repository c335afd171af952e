//! The schemes that are known without configuration.

use super::scheme::GpuScheme;

/// Number of cards of a node, from a label that NVIDIA's GPU feature discovery sets.
const NVIDIA_CARDS: &str = "label nvidia.com/gpu.count";

/// Returns the default schemes, in the order in which they are tried.
pub fn schemes() -> Vec<GpuScheme> {
    let scheme = |name: &str, shares: &[&str]| GpuScheme::new(name, shares);
    let of_hami = ["request nvidia.com/gpumem / memory", "request nvidia.com/gpumem-percentage / 100"];
    let of_volcano = [
        "request volcano.sh/vgpu-memory / memory",
        "request volcano.sh/vgpu-memory-percentage / 100",
        "request volcano.sh/vgpu-cores / 100",
    ];
    let [one, two] = of_hami;
    let replicas = [
        "request nvidia.com/gpu / label nvidia.com/gpu.replicas",
        "request nvidia.com/gpu.shared / label nvidia.com/gpu.replicas",
    ];
    let gke = "request nvidia.com/gpu / label cloud.google.com/gke-max-shared-clients-per-gpu";
    let gpushare = [
        "request aliyun.com/gpu-mem * capacity aliyun.com/gpu-count / capacity aliyun.com/gpu-mem",
        "request aliyun.com/gpu-core.percentage / 100",
    ];
    let partitions = [
        "request amd.com/spx_*",
        "request amd.com/dpx_* / 2",
        "request amd.com/qpx_* / 4",
        "request amd.com/cpx_* / 8",
    ];
    let amd = |mode: &str, each: &str| {
        let shares = format!("request amd.com/gpu / {each}");
        let node = format!("label amd.com/*compute-memory-partition = {mode}*");
        scheme("amd-partition", &[&shares]).on(&node)
    };
    let intel = "request gpu.intel.com/i915 * label gpu.intel.com/device-id.*.count / capacity \
                 gpu.intel.com/i915";
    // The fractions of the pods that share the card count, so the pod that reserves it counts nothing.
    let reservation =
        |namespace: &str| scheme("kai-reservation", &["request nvidia.com/gpu * 0"]).of_namespace(namespace);
    vec![
        reservation("kai-resource-reservation"),
        reservation("runai-reservation"),
        scheme("hami", &[one, two, "request nvidia.com/gpucores / 100"])
            .registered("hami.io/node-nvidia-register", Some("hami.io/vgpu-devices-allocated"))
            .times("request nvidia.com/gpu"),
        scheme("volcano", &of_volcano)
            .registered("volcano.sh/node-vgpu-register", Some("volcano.sh/vgpu-ids-new"))
            .times("request volcano.sh/vgpu-number"),
        scheme("gke", &[gke]).on("label cloud.google.com/gke-gpu-sharing-strategy"),
        scheme("time-slicing", &replicas)
            .on("label nvidia.com/gpu.sharing-strategy = time-slicing")
            .cards(NVIDIA_CARDS),
        scheme("mps", &replicas).on("label nvidia.com/gpu.sharing-strategy = mps").cards(NVIDIA_CARDS),
        scheme("nos", &["gigabytes nvidia.com/gpu-*gb / label-gb nvidia.com/gpu.memory"])
            .on("capacity nvidia.com/gpu-*gb")
            .cards(NVIDIA_CARDS),
        scheme("kai", &["annotation gpu-fraction", "annotation gpu-memory / label nvidia.com/gpu.memory"])
            .times("annotation gpu-fraction-num-devices"),
        scheme("gpushare", &gpushare)
            .on("capacity aliyun.com/gpu-mem")
            .cards("capacity aliyun.com/gpu-count"),
        scheme("amd-partition", &partitions),
        amd("dpx", "2"),
        amd("qpx", "4"),
        amd("cpx", "8"),
        scheme("intel", &[intel])
            .on("capacity gpu.intel.com/i915")
            .cards("label gpu.intel.com/device-id.*.count"),
    ]
}
