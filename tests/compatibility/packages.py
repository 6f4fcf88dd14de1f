"""Networks of other packages; each is imported when it is built, so that those that are missing can be left out."""

from __future__ import annotations

from operator import itemgetter

import torch
from torch import Tensor, nn

from tests.compatibility.networks import BATCH, WORDS, Network, classes, lively, numbers, pixels, reals, tokens

__all__ = ["NETWORKS"]

#: A ring of nodes with one chord, both ways; nodes are the rows.
NODES = 5
RATES = {"attn_dropout": 0.1, "ff_dropout": 0.1}


def scan(size: int) -> tuple[Tensor]:
    """Images with one channel."""
    return (reals(1, size, size),)


def graph(_: int) -> tuple[Tensor, Tensor]:
    """Features of the nodes, and edges."""
    start = torch.tensor([0, 1, 2, 3, 4, 0])
    end = torch.tensor([1, 2, 3, 4, 0, 2])
    return torch.randn(NODES, 8), torch.stack([torch.cat([start, end]), torch.cat([end, start])])


def dense(outputs: Tensor) -> Tensor:
    """The log-likelihood of each example of logits (B, C, ...)."""
    return classes(outputs.movedim(1, -1))


def monai_unet() -> nn.Module:
    from monai.networks.nets import UNet

    return UNet(2, 1, 5, channels=(4, 8, 16), strides=(2, 2), num_res_units=1, dropout=0.1)


def monai_unetr() -> nn.Module:
    from monai.networks.nets import UNETR

    sizes = {"feature_size": 4, "hidden_size": 16, "mlp_dim": 32, "num_heads": 4}
    return UNETR(1, 5, 32, **sizes, dropout_rate=0.1, spatial_dims=2)


def monai_swin_unetr() -> nn.Module:
    from monai.networks.nets import SwinUNETR

    sizes = {"depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2), "feature_size": 12, "window_size": 4}
    return SwinUNETR(1, 5, **sizes, drop_rate=0.1, attn_drop_rate=0.1, spatial_dims=2)


def monai_segresnet() -> nn.Module:
    from monai.networks.nets import SegResNet

    sizes = {"blocks_down": (1, 1), "blocks_up": (1,), "norm": ("GROUP", {"num_groups": 4})}
    return SegResNet(2, 4, 1, 5, dropout_prob=0.1, **sizes)


def monai_vit() -> nn.Module:
    from monai.networks.nets import ViT

    sizes = {"hidden_size": 16, "mlp_dim": 32, "num_layers": 2, "num_heads": 4, "num_classes": 5}
    return ViT(1, 16, 8, **sizes, classification=True, dropout_rate=0.1, spatial_dims=2)


def monai_densenet() -> nn.Module:
    from monai.networks.nets import DenseNet

    return DenseNet(2, 1, 5, init_features=8, growth_rate=4, block_config=(2, 2), dropout_prob=0.1)


def gcn() -> nn.Module:
    from torch_geometric.nn import GCN

    return GCN(8, 16, 2, 3, dropout=0.3)


def gat() -> nn.Module:
    from torch_geometric.nn import GAT

    return GAT(8, 16, 2, 3, dropout=0.3, heads=4)


def unscaled(data: dict[str, Tensor]) -> Tensor:
    """Predictions as the network makes them."""
    return data["prediction"]


def temporal_fusion() -> nn.Module:
    from pytorch_forecasting import TemporalFusionTransformer
    from pytorch_forecasting.metrics import QuantileLoss

    names = ["static", "known", "seen"]
    return TemporalFusionTransformer(
        hidden_size=8, lstm_layers=2, dropout=0.1, attention_head_size=2, hidden_continuous_size=4, loss=QuantileLoss(),
        x_reals=names, static_reals=names[:1], time_varying_reals_decoder=names[1:2],
        time_varying_reals_encoder=names[1:], output_transformer=unscaled,
    )  # fmt: skip


def forecast(length: int) -> tuple[dict[str, Tensor]]:
    """Some steps of three variables, and four to come."""
    none = torch.zeros(BATCH, length, 0, dtype=torch.long), torch.zeros(BATCH, 4, 0, dtype=torch.long)
    lengths = torch.full((BATCH,), length), torch.full((BATCH,), 4)
    past, future = reals(length, 3), reals(4, 3)
    found = {"encoder_cat": none[0], "decoder_cat": none[1], "encoder_cont": past, "decoder_cont": future}
    scale = torch.tensor([[0.0, 1.0]]).expand(BATCH, 2).clone()
    return (found | {"encoder_lengths": lengths[0], "decoder_lengths": lengths[1], "target_scale": scale},)


def rtdl_mlp() -> nn.Module:
    from rtdl_revisiting_models import MLP

    return MLP(d_in=8, d_out=5, n_blocks=2, d_block=16, dropout=0.1)


def rtdl_resnet() -> nn.Module:
    from rtdl_revisiting_models import ResNet

    sizes = {"n_blocks": 2, "d_block": 16, "d_hidden": None, "d_hidden_multiplier": 2.0}
    return ResNet(d_in=8, d_out=5, **sizes, dropout1=0.2, dropout2=0.1)


def ft_transformer() -> nn.Module:
    from rtdl_revisiting_models import FTTransformer

    sizes = {"n_blocks": 2, "d_block": 16, "attention_n_heads": 4, "ffn_d_hidden": None, "ffn_d_hidden_multiplier": 2}
    rates = {"attention_dropout": 0.2, "ffn_dropout": 0.1, "residual_dropout": 0.1}
    return FTTransformer(n_cont_features=5, cat_cardinalities=[3, 4], d_out=5, **sizes, **rates)


def features(size: int) -> tuple[Tensor]:
    """Numbers."""
    return (reals(size),)


def text(length: int) -> tuple[Tensor]:
    """Words."""
    return (tokens(length),)


def tabular(_: int) -> tuple[Tensor, Tensor]:
    """Numbers and categories."""
    return reals(5), torch.randint(3, (BATCH, 2))


def piecewise_mlp() -> nn.Module:
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings
    from rtdl_revisiting_models import MLP

    bins = [torch.linspace(-2, 2, 6) for _ in range(4)]
    embeddings = PiecewiseLinearEmbeddings(bins, 6, activation=False, version="B")
    return nn.Sequential(embeddings, nn.Flatten(), MLP(d_in=24, d_out=5, n_blocks=2, d_block=16, dropout=0.1))


def tabm() -> nn.Module:
    from tabm import TabM

    return TabM.make(n_num_features=5, cat_cardinalities=[3, 4], d_out=5, d_block=16, n_blocks=2, k=4)


def x_decoder() -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=16, depth=2, heads=4, attn_dim_head=4, attn_dropout=0.1, ff_dropout=0.1)
    return TransformerWrapper(num_tokens=WORDS, max_seq_len=16, attn_layers=layers, emb_dropout=0.1)


def x_encoder() -> nn.Module:
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(dim=16, depth=2, heads=4, attn_dim_head=4, attn_dropout=0.1, ff_dropout=0.1)
    return ViTransformerWrapper(image_size=16, patch_size=8, attn_layers=layers, num_classes=5, emb_dropout=0.1)


def perceiver() -> nn.Module:
    from perceiver_pytorch import Perceiver

    sizes = {"num_latents": 6, "latent_dim": 16, "latent_heads": 4, "cross_dim_head": 4, "latent_dim_head": 4}
    return Perceiver(num_freq_bands=2, depth=2, max_freq=4.0, input_channels=1, num_classes=5, **sizes, **RATES)


def tab_transformer() -> nn.Module:
    from tab_transformer_pytorch import TabTransformer

    sizes = {"categories": (3, 4), "num_continuous": 5, "dim": 16, "depth": 2, "heads": 4, "dim_head": 4, "dim_out": 5}
    return TabTransformer(**sizes, **RATES, mlp_act=nn.ReLU())


def conformer() -> nn.Module:
    from conformer import ConformerBlock  # Conformer keeps its rates to itself

    return ConformerBlock(dim=16, dim_head=4, heads=4, conv_kernel_size=3, conv_dropout=0.1, **RATES)


def linear_attention() -> nn.Module:
    from linear_attention_transformer import LinearAttentionTransformerLM

    sizes = {"num_tokens": WORDS, "max_seq_len": 8, "dim": 16, "depth": 2, "heads": 4, "dim_head": 4}
    rest = {"causal": True, "attn_layer_dropout": 0.1, "use_axial_pos_emb": False}
    return LinearAttentionTransformerLM(**sizes, **rest, **RATES)


def tcn() -> nn.Module:
    from pytorch_tcn import TCN

    return TCN(3, [8, 8], kernel_size=3, dropout=0.1, input_shape="NLC", output_projection=5)


def efficientnet() -> nn.Module:
    from efficientnet_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-b0", num_classes=5, width_coefficient=0.25, image_size=32)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # with the statistics of no image its features vanish on the way
    model.train()(torch.randn(8, 3, 32, 32))
    return model


def nnunet() -> nn.Module:
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    layers = {"norm_op": nn.InstanceNorm2d, "norm_op_kwargs": {"affine": True}, "nonlin": nn.LeakyReLU}
    dropout = {"dropout_op": nn.Dropout2d, "dropout_op_kwargs": {"p": 0.1}}
    return PlainConvUNet(1, 3, [4, 8, 16], nn.Conv2d, 3, [1, 2, 2], 1, 5, 1, **layers, **dropout)


NETWORKS = (
    Network("UNet", "monai", monai_unet, scan, 16, 24, log_likelihood=dense),
    Network("UNETR", "monai", monai_unetr, scan, 32, log_likelihood=dense),
    Network("SwinUNETR", "monai", monai_swin_unetr, scan, 64, 96, log_likelihood=dense),
    Network("SegResNet", "monai", monai_segresnet, scan, 16, 24, log_likelihood=dense),
    Network("ViT", "monai", monai_vit, scan, 16),
    Network("DenseNet", "monai", monai_densenet, scan, 16, 24),
    Network("GCN", "torch_geometric", gcn, graph, coupled=True),
    Network("GAT", "torch_geometric", gat, graph, coupled=True),
    Network(
        *("TemporalFusionTransformer", "pytorch-forecasting", temporal_fusion, forecast, 6, 8),
        output=itemgetter("prediction"),
        log_likelihood=numbers,
    ),
    Network("MLP", "rtdl_revisiting_models", rtdl_mlp, features, 8),
    Network("ResNet", "rtdl_revisiting_models", rtdl_resnet, features, 8),
    Network("FTTransformer", "rtdl_revisiting_models", ft_transformer, tabular),
    Network("MLP on piecewise linear embeddings", "rtdl_num_embeddings", piecewise_mlp, features, 4),
    Network("TabM", "tabm", tabm, tabular),
    Network("Decoder", "x-transformers", lively(x_decoder), text, 7, 9, causal=0),
    Network("ViT encoder", "x-transformers", x_encoder, lambda n: (pixels(n),), 16),
    Network("Perceiver", "perceiver-pytorch", perceiver, lambda n: (reals(n, n, 1),), 6, 8),
    Network("TabTransformer", "tab-transformer-pytorch", tab_transformer, lambda n: tabular(n)[::-1]),
    Network(
        "ConformerBlock", "conformer", conformer, lambda length: (reals(length, 16),), 7, 9, log_likelihood=numbers
    ),
    Network("linear attention", "linear-attention-transformer", lively(linear_attention), text, 8, causal=0),
    Network("TCN", "pytorch-tcn", lively(tcn), lambda n: (reals(n, 3),), 9, 12, log_likelihood=numbers, causal=0),
    Network("EfficientNet", "efficientnet-pytorch", efficientnet, lambda n: (pixels(n),), 32, 48),
    Network("nnU-Net", "dynamic-network-architectures", nnunet, scan, 16, 24, log_likelihood=dense),
)
