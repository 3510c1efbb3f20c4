"""What every room needs: types, inputs, errors, files, configs, random numbers, devices."""
