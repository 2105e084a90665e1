"""Files that start a cluster for a sweep: of `ray up`, of KubeRay, and the image of its nodes.

Any process; imports neither Ray nor torch. Nothing is started, and no cloud is asked. In order:

    yaml_text   YAML with comments
    demand      nodes that a sweep can use at once
    asked       options of a file, and what they and the sweep come to
    packages    packages of the nodes, in the versions that are installed here
    files       files of the user that the sweep needs on the nodes
    describe    description of the cluster that a sweep needs
    dockerfile  the image of the nodes
    ray_up      the file of `ray up`
    kuberay     the documents of KubeRay
"""
