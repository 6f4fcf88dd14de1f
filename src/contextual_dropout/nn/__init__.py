"""The layers: families of masks, encoders, the site, and other layers that sample."""
