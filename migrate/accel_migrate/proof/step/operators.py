"""The names of torch's operators, by what they do to the rows of a batch."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


POINTWISE = _words("""
    abs acos add addcdiv addcmul asin atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp
    clamp_max clamp_min copy copysign cos cosh div elu eq erf erfc exp exp2 expm1 fill floor floor_divide fmod ge
    gelu gt hardshrink hardsigmoid hardswish hardtanh isfinite isinf isnan le leaky_relu lerp log log10 log1p log2
    log_sigmoid_forward logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill maximum
    minimum mish mul nan_to_num ne neg pow reciprocal relu relu6 remainder round rsqrt rsub sgn sigmoid sign silu
    sin sinh softplus softshrink sqrt square sub tan tanh threshold trunc where xlogy zero _prelu_kernel
    special_xlog1py _conj binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss
    huber_loss soft_margin_loss softsign hardtanh clone contiguous detach alias _to_copy lift_fresh type_as
""")
CRITERIA = _words("""
    binary_cross_entropy binary_cross_entropy_with_logits mse_loss smooth_l1_loss huber_loss soft_margin_loss
    nll_loss_forward nll_loss2d_forward
""")
FILLED = _words("""
    zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
    scalar_tensor empty_strided new_empty_strided
""")
RANDOM = _words("""
    rand randn randint rand_like randn_like randint_like bernoulli uniform normal exponential random geometric
    log_normal cauchy native_dropout dropout alpha_dropout feature_dropout rrelu_with_noise
""")
ALONG = _words("""
    sum mean prod amax amin max min argmax argmin logsumexp var std var_mean std_mean norm linalg_vector_norm any
    all _softmax _log_softmax softmax log_softmax cumsum cumprod sort topk argsort median nansum count_nonzero flip
    roll glu
""")
CONVOLUTIONS = _words("convolution mkldnn_convolution _convolution")
IMAGES = _words("""
    max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d max_pool3d_with_indices avg_pool3d
    upsample_nearest2d upsample_bilinear2d upsample_nearest1d _adaptive_avg_pool3d constant_pad_nd reflection_pad2d
    replication_pad2d pixel_shuffle avg_pool1d max_pool1d
""")
RESHAPES = _words("view _unsafe_view reshape squeeze unsqueeze flatten _reshape_alias unflatten")
CUTS = _words("""
    select slice narrow split split_with_sizes unsafe_split unsafe_split_with_sizes unbind chunk
""")
BATCH_NORMS = _words("""
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update
""")
# Sizes follow from the batch, and what is made has them; the rest says nothing about numbers.
UNCOMPARED = _words("""
    size sizes N HxW device dtype layout pin_memory memory_format generator names implicit non_blocking copy
""")
