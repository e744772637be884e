def sections(rows):
    return {}
