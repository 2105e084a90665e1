"""HTML of studies, plans and recommendations in Jupyter."""
