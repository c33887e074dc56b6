"""What tests of all kinds stand on: servers, sites, projects, clocks, races, the oracle."""
