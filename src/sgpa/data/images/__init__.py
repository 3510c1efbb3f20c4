"""Image data sets, augmentation, and folders of images that a user brings."""
