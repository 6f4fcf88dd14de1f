"""What a site is: families of masks, encoders, the site, and layers that sample."""
